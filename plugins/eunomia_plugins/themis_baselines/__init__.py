"""Baselines of Themis (§6.1) that no other family has: the valuations of Optimus and SLAQ."""
