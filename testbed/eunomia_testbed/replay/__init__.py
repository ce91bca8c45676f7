"""Replays a workload with real training on this machine's slots, and compares the result with its simulation."""
