"""Everything that the arbiter knows, and the two ways in which it changes: events folded in, decisions adopted.

Only the room ``round`` calls these modules; stages see the state through ``show`` as a read-only snapshot.
"""
