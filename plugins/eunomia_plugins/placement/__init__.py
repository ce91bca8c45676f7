"""Placements that any profile can use."""
