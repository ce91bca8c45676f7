"""Rows of a trace that are not used, and why: what ``dropped.csv`` holds."""

from eunomia.shapes import value


@value
class Dropped:
    """One row that a reader or a simulation left out."""

    file: str
    line: int
    """From 1, the header counted; 0: the file as a whole."""
    rule: str
    """What a row must be, as in an error: ``num_gpus must be at least 1``."""
    value: str
