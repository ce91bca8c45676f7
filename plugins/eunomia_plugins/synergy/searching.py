"""Binary search over CPUs at full memory (Synergy §3.1)."""

from collections.abc import Mapping

from eunomia.model.shapes import value


@value
class NextPoint:
    """The next CPUs to measure.

    Attributes:
        cpus: CPUs per GPU, the preferred number first, then acceptable ones. Empty: nothing to measure.
        searched: whether the search is over for the CPUs that were available so far.
    """

    cpus: tuple[int, ...] = ()
    searched: bool = True


def next_point(rates: Mapping[int, float], share: int, most: int, threshold: float) -> NextPoint:
    """Return the next CPUs to measure, given those measured.

    The most CPUs come first, then the proportional share. The search continues above the share where the most CPUs
    are faster by more than the threshold, and else below it. It halves the interval: it takes the lower half where
    the middle is slower than the upper end by at most the threshold.

    Args:
        rates: iterations a second by CPUs a GPU, at full memory.
        share: CPUs a GPU in proportion.
        most: CPUs a GPU that the job can have at all.
        threshold: the part by which more CPUs must be faster.
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
