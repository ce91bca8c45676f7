"""Counts failures of the workers of jobs that change live, by slot; a gang does without a slot on which two failed."""

from collections import Counter
from typing import Final

MOST_FAILURES: Final = 2
"""Failures of one slot, after which a gang does without it for a time."""
WITHOUT_SECONDS: Final = 600.0
"""Seconds for which a gang does without such a slot, before it gets one more worker."""

Place = tuple[int, int, int]
"""Job, GPU, and epoch of the GPU's lease."""


class SlotFailures:
    """Failures by job and slot, under one lease of the slot."""

    def __init__(self) -> None:
        self._failed: Counter[Place] = Counter()
        self._at: dict[Place, float] = {}
        """Time of the last failure in Unix seconds."""

    def count(self, place: Place, now: float, *, for_good: bool = False) -> None:
        """Count a failure; ``for_good``: one that the next worker would have as well."""
        self._failed[place] += MOST_FAILURES if for_good else 1
        self._at[place] = now

    def has(self, place: Place) -> bool:
        """Return whether a worker has failed there."""
        return self._failed[place] > 0

    def is_given_up(self, place: Place, now: float) -> bool:
        """Return whether a gang does without a slot at this time."""
        return self._failed[place] >= MOST_FAILURES and now - self._at[place] < WITHOUT_SECONDS
