"""Simulated app masters: how apps divide their GPUs, search, bid and report."""
