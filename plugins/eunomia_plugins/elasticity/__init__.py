"""Elasticities that any profile can use: the sizes that a job can run at, and its rate at each."""
