"""The arbiter's journal: every step in SQLite, with checksums, checkpoints and archives.

Drivers write it; the arbiter imports nothing of it. ``docs/reference/journal.md`` describes the file.
"""
