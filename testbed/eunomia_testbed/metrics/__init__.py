"""Metrics of runs: pure functions from columns to numbers, and from a simulated run to the tables of a result folder.

Each metric's definition and source are in ``docs/reference/metrics.md``. Most modules here use only numpy; ``frames``,
``simulated_log``, ``size_changes`` and ``conformance`` also use polars.
"""
