"""Tests the properties that a policy promises its users, on single allocations and over simulated rounds.

The tested instances (users, GPUs) are drawn by generators.
"""
