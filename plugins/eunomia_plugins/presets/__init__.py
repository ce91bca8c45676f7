"""Profiles that this package ships, a TOML file each."""
