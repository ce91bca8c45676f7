"""Explain why a job waits and what would let it start, for ``eunomia explain``.

Remedies are tried on copies of the state; nothing is changed. Commands and the live service call this package.
"""
