"""Synergy (OSDI'22): allocate CPUs and memory to each job according to its sensitivity to them."""
