"""Tests the properties that a policy claims for its users, on single allocations and over simulated rounds.

Instances are drawn from generators.
"""
