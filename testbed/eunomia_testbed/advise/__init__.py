"""Advice on a policy for a trace: which presets fit, what the runs show by goal, and what would change it."""
