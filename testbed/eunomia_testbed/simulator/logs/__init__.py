"""The output of a run: its steps, which are counted and logged, and its results as columns."""
