"""Find, check and bind plugins, read and resolve profiles, and read files of rates by kind of job.

All TOML written by users, and all plugins shipped in packages, are loaded through this package.
"""
