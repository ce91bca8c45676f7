"""What passes between the core and its plugins: snapshots in, answers out, and the types that both name.

A policy author reads this room. The types are frozen values; the public ones are exported by ``eunomia`` itself, and
``docs/reference/stability.md`` lists what will not change.
"""
