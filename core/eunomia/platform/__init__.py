"""Plugins found, checked and bound; profiles and cluster files read and resolved.

Everything that a user writes in TOML, and everything that a package ships as a plugin, comes in through this room.
"""
