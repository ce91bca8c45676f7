"""Faults of a replay: drawn from a seed, carried out on a real run's processes, simulated, and checked."""
