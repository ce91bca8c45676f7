"""Refiners that any profile can use: shares into whole GPUs, grants of users and apps into grants of jobs."""
