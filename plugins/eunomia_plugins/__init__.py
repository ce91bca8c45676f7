"""The policies that ship with Eunomia: one folder a family, each loaded by name like a stranger's."""
