"""Runs many simulations (policies, seeds and loads) in parallel processes, with resumption and a progress display."""
