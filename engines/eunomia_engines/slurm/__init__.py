"""Slurm: each node is a batch job of the user's own, in which a launcher runs."""
