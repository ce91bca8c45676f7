"""Runs many simulations: policies, seeds and loads, in parallel processes, resumable, with one progress display."""
