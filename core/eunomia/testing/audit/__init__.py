"""Judges the allocations of a profile on drawn instances: fairness, efficiency, and profitable lies."""
