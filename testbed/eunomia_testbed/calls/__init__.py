"""Limits on the time of plugin calls: each call is recorded and timed, and a call that takes too long is aborted."""
