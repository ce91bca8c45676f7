"""Limits on the time of plugin calls: each call is recorded and timed, and one that takes too long is ended."""
