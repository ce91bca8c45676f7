"""Profiles that this package ships, one TOML file each."""
