"""The two ways in which the store changes: events are applied (folded in), and decisions are adopted.

Only the package ``round`` calls these modules, and ``explain`` on copies of the state; stages see the store as a
read-only snapshot, through ``eunomia.round.show``.
"""
