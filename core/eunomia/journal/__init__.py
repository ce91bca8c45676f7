"""The arbiter's journal: every step, in an SQLite file with checksums, checkpoints and archives.

Drivers write the journal; the arbiter does not import it. ``docs/reference/journal.md`` describes the file.
"""
