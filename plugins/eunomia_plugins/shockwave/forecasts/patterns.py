"""The next batch sizes of a job: Accordion alternates between two, GNS doubles up to a limit (§5)."""

import itertools
import math
from collections.abc import Sequence

from eunomia import Adapts


def coming_batch_sizes(
    mode: Adapts, seen: Sequence[float], largest: float, accordion_regimes: int
) -> tuple[float, ...]:
    """Return the batch sizes after the present one that follow from the pattern of the mode.

    The result is empty if the job is expected to keep its batch size, as it is once it breaks the pattern.

    Args:
        mode: the declared mode.
        seen: batch sizes of the regimes so far, the present one last.
        largest: the job's largest batch size as far as known; a larger one that was seen replaces it.
        accordion_regimes: maximum number of regimes of an Accordion job.
    """
    largest = max(largest, *seen)
    if mode is Adapts.GNS:
        return _doubled(seen, largest)
    if mode is Adapts.ACCORDION:
        return _alternated(seen, largest, accordion_regimes)
    return ()


def _doubled(seen: Sequence[float], largest: float) -> tuple[float, ...]:
    if any(later <= earlier for earlier, later in itertools.pairwise(seen)):
        return ()
    times = math.floor(math.log2(largest / seen[-1]) + _ROUNDING)
    return tuple(seen[-1] * 2.0**power for power in range(1, min(times, MOST_DOUBLINGS) + 1))


def _alternated(seen: Sequence[float], largest: float, regimes: int) -> tuple[float, ...]:
    small = seen[0]
    pair = (small, seen[1] if len(seen) > 1 else largest)
    if pair[0] >= pair[1] or any(batch != pair[turn % 2] for turn, batch in enumerate(seen)):
        return ()
    return tuple(pair[turn % 2] for turn in range(len(seen), regimes))


_ROUNDING = 1e-9
MOST_DOUBLINGS = 64
"""Maximum number of doublings in one forecast."""
