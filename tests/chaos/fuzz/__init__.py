"""Hostile messages against the arbiter's service: generated, mutated, and what they did."""
