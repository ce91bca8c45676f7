"""The policies that ship with Eunomia, one package per family; each is loaded by name like a third-party plugin."""
