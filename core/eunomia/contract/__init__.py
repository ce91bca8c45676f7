"""The interface between the core and its plugins: snapshots, the answers of stages, and the types in both.

This package is written for policy authors. Its types are frozen values; ``eunomia`` exports the public ones, and
``docs/reference/stability.md`` lists what will not change.
"""
