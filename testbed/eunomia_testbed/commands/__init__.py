"""The testbed's commands, such as ``eunomia simulate`` and ``eunomia compare``, which are imported on first use."""
