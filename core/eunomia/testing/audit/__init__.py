"""Judges the allocations of a profile: fairness, efficiency, and lies that pay, on drawn instances."""
