"""The two ways in which the store changes: events are folded in, and decisions are adopted.

Only the room ``round`` calls these modules, and ``explain`` on copies of the state; stages see the store through
``eunomia.round.show``, as a read-only snapshot.
"""
