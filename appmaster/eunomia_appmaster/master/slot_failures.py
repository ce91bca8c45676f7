"""Counts failures of the workers of jobs that change live, by slot; a slot with two failures is given back."""

from collections import Counter
from typing import Final

MOST_FAILURES: Final = 2
"""Number of failures on one slot after which a gang does not use the slot for a time."""
WITHOUT_SECONDS: Final = 600.0
"""Seconds for which a gang does not use such a slot, unless it is given back, before a new worker is started on it."""
FIRST_PAUSE_SECONDS: Final = 30.0
"""Seconds for which such a slot is kept before it is given back a second time; they double each time, since otherwise
the arbiter would grant it to the job again and again. The first time, the slot is given back at once."""

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
        """Count a failure on a slot; ``for_good``: whether every further worker there would fail as well."""
        self._failed[place] += MOST_FAILURES if for_good else 1
        self._at[place] = now

    def has(self, place: Place) -> bool:
        """Return whether a worker has failed on a slot."""
        return self._failed[place] > 0

    def is_given_up(self, place: Place, now: float) -> bool:
        """Return whether a gang does not use a slot at this time, because workers failed on it."""
        return self._failed[place] >= MOST_FAILURES and now - self._at[place] < WITHOUT_SECONDS

    def may_be_given_back(self, place: Place, now: float) -> bool:
        """Return whether a slot that its gang does not use may be given back now, after a growing pause."""
        times = self._given_back[place[:2]]
        pause = FIRST_PAUSE_SECONDS * 2.0 ** min(times - 1, 30) if times else 0.0
        return self.is_given_up(place, now) and now - self._at[place] >= min(pause, WITHOUT_SECONDS / 2.0)

    def gives_back(self, place: Place) -> None:
        """Record that a slot is given back."""
        self._given_back[place[:2]] += 1
