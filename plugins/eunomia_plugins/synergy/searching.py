"""The binary search over numbers of CPUs at full memory (Synergy §3.1)."""

from collections.abc import Mapping

from eunomia.model.shapes import value


@value
class NextPoint:
    """The next number of CPUs to measure.

    Attributes:
        cpus: CPUs per GPU, the preferred number first, then acceptable ones; empty if nothing is to be measured.
        searched: whether the search is complete for the CPUs available so far.
    """

    cpus: tuple[int, ...] = ()
    searched: bool = True


def next_point(rates: Mapping[int, float], share: int, most: int, threshold: float) -> NextPoint:
    """Return the next number of CPUs to measure, given the rates measured so far.

    The maximum comes first, then the proportional share. The search continues above the share if the maximum is faster
    by more than the threshold, else below it. It bisects the interval: it takes the lower half if the middle is slower
    than the upper end by at most the threshold.

    Args:
        rates: iterations per second by CPUs per GPU, at full memory.
        share: proportional CPUs per GPU.
        most: maximum CPUs per GPU that the job can have.
        threshold: minimum relative speedup for which more CPUs are worthwhile.
    """
    top = max(rates, default=0)
    if top <= share < most:
        return NextPoint(cpus=tuple(range(most, share, -1)), searched=False)
    if share not in rates:
        return NextPoint(cpus=(share,), searched=False)
    low, high = (share, top) if _gains(rates[share], rates[top], threshold) else (0, share)
    while high - low > 1:
        middle = (low + high) // 2
        if middle not in rates:
            return NextPoint(cpus=(middle,), searched=False)
        low, high = (middle, high) if _gains(rates[middle], rates[high], threshold) else (low, middle)
    return NextPoint(cpus=tuple(range(most, top, -1)) if high == top else ())


def _gains(fewer: float, more: float, threshold: float) -> bool:
    return more > fewer * (1.0 + threshold)
