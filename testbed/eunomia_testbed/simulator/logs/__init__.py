"""The output of a run: its steps, counted and logged, and its results as columns."""
