"""Baselines of Themis (§6.1) that belong to no other family: the valuations of Optimus and SLAQ, and orders of apps."""
