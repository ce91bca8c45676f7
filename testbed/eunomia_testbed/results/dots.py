"""The sum of products of two columns, computed in one thread."""

from typing import Final

from eunomia.units import Reals

_BLOCK: Final = 10_000
"""Up to this length OpenBLAS uses one thread; for longer columns it uses a thread per core. These threads keep spinning
afterwards, and the last digits of the sum depend on their number."""


def dot(left: Reals, right: Reals) -> float:
    """Return the sum of the products of two columns of equal length."""
    return sum(
        float(left[start : start + _BLOCK] @ right[start : start + _BLOCK]) for start in range(0, left.size, _BLOCK)
    )
