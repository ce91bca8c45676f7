"""Allocations that any profile can use."""
