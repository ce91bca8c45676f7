"""Refiners for any profile: shares to whole GPUs, grants of users and apps to grants of jobs."""
