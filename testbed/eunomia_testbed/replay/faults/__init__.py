"""Faults of a replay by a seeded plan: drawn, carried out on the processes of a real run, simulated, and judged."""
