"""Metrics of runs: pure functions from columns to numbers, and from a simulated run to the tables of a result folder.

Each metric's definition and source are in ``docs/reference/metrics.md``. Modules here import only numpy, except
``frames``, which makes polars frames.
"""
