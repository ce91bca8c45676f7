"""What a run leaves: steps counted and logged, and its results as columns."""
