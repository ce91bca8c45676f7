"""What runs are judged by: pure functions from columns to numbers, and from a simulated run to the tables of a folder.

Each metric's definition and source stand in ``docs/reference/metrics.md``. Modules here import numpy alone, but for
``frames``, which makes polars frames.
"""
