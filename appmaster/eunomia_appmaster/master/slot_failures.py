"""Counts failures of the workers of jobs that change live, by slot; a slot on which two failed is given back."""

from collections import Counter
from typing import Final

MOST_FAILURES: Final = 2
"""Failures of one slot, after which a gang does without it for a time."""
WITHOUT_SECONDS: Final = 600.0
"""Seconds for which a gang does without such a slot where it is not given back, before it gets one more worker."""
FIRST_PAUSE_SECONDS: Final = 30.0
"""Seconds for which such a slot is kept before it is given back a second time; they double each time, since otherwise
the arbiter would grant it to the job again and again. The first time it is given back at once."""

Place = tuple[int, int, int]
"""Job, GPU, and epoch of the GPU's lease."""


class SlotFailures:
    """Failures by job and slot, under one lease of the slot."""

    def __init__(self) -> None:
        self._failed: Counter[Place] = Counter()
        self._at: dict[Place, float] = {}
        """Time of the last failure in Unix seconds."""
        self._given_back: Counter[tuple[int, int]] = Counter()
        """How often a GPU was given back for a job, by job and GPU."""

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

    def may_be_given_back(self, place: Place, now: float) -> bool:
        """Return whether the arbiter is to decide again on a slot without which its gang goes on."""
        times = self._given_back[place[:2]]
        pause = FIRST_PAUSE_SECONDS * 2.0 ** min(times - 1, 30) if times else 0.0
        return self.is_given_up(place, now) and now - self._at[place] >= min(pause, WITHOUT_SECONDS / 2.0)

    def gives_back(self, place: Place) -> None:
        """Record that a slot is given back."""
        self._given_back[place[:2]] += 1
