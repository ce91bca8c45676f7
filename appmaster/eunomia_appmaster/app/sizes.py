"""Formats amounts of disk space as text."""

import math


def size_text(size: float) -> str:
    """Return a size in bytes as text, in the largest binary unit that it reaches: ``20.31 GiB``, ``12 B``."""
    if math.isinf(size):
        return "inf GiB"
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size:.0f} B"
