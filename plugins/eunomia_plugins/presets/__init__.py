"""The presets: profiles that ship with this package, one TOML file each."""
