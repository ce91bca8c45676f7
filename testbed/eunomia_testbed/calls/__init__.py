"""Limits on the time of a plugin's call: what is under way is noted, watched, and ended by name."""
