"""Synergy (OSDI'22): CPUs and memory of each job by its sensitivity to them."""
