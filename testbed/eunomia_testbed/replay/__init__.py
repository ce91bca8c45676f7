"""Replays a workload with real training on this machine's slots, and compares the outcome with a simulation of it."""
