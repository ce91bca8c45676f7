"""The testbed's commands, such as ``eunomia simulate`` and ``eunomia compare``; each is imported when it is called."""
