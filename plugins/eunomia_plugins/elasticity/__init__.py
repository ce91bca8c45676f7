"""Elasticities that any profile can use: which sizes a job can run at, and how fast."""
