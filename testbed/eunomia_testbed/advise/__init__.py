"""Advice on a policy for a trace: which presets fit, which policy is best by each goal, and what would change that."""
