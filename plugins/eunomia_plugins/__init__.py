"""The policies that ship with Eunomia: one folder per family, each loaded by name like a third-party plugin."""
