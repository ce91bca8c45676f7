"""The arbiter's memory on disk: every step in SQLite, with sums, checkpoints, archives and salvage.

Drivers write it; the arbiter imports nothing of it. ``docs/reference/journal.md`` describes the file.
"""
