"""Finds, checks and binds plugins; reads and resolves profiles, and reads files of rates by kind of job.

Everything that a user writes in TOML, and everything that a package ships as a plugin, comes in through this room.
"""
