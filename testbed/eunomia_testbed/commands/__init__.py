"""The testbed's commands: ``eunomia simulate`` and ``eunomia compare``."""
