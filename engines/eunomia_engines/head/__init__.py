"""The head: the arbiter of a state folder whose nodes an engine provides, and the keeper of those nodes."""
