"""The history of a job's adaptations: when its batch size changed, to what, and at how many iterations."""

import math
from dataclasses import replace
from enum import IntEnum
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import Seconds

MOST_ADAPTATIONS: Final = 256
"""Maximum number of adaptations kept per job; older ones are only counted."""


MOST_BATCH_SIZE: Final = 1e15
"""Largest batch size that a script may announce."""


def is_batch_size(given: object) -> bool:
    """Return whether a value is a valid batch size: a number above 0, at most ``MOST_BATCH_SIZE``."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return False
    return 0.0 < given <= MOST_BATCH_SIZE  # NaN is not


class Adapts(IntEnum):
    """The declared way in which a job adapts its batch size during training."""

    UNKNOWN = 0
    STATIC = 1
    """The batch size is constant."""
    ACCORDION = 2
    """The batch size switches between a small and a large value, by critical regimes (Accordion)."""
    GNS = 3
    """The batch size grows with the gradient noise scale."""
    OTHER = 4


MODES: Final = tuple(mode.name.lower() for mode in Adapts if mode is not Adapts.UNKNOWN)
"""Names of the modes in app files, traces and messages."""


def adapts_named(word: str | None, *, place: str | None = None) -> Adapts:
    """Return the mode with a name, or ``UNKNOWN`` for None and the empty string.

    Raises:
        InputError: no mode has this name.
    """
    if not word:
        return Adapts.UNKNOWN
    if word not in MODES:
        raise InputError(f"adapts must be one of {', '.join(MODES)}", value=f'"{word[:80]}"', place=place)
    return Adapts[word.upper()]


@value
class ComingRegime:
    """A future part of a job's work, with its own batch size and speed."""

    iterations: float
    """Number of iterations in the regime, in the unit of the job's work."""
    rate: float
    """Iterations per second at the job's largest size in one island; 0: the job cannot run there."""
    batch_size: float = math.nan
    """Global batch size; NaN: not known."""


@value
class Adaptation:
    """One change of a job's global batch size."""

    at: Seconds
    """Time of the change in seconds since the arbiter's start."""
    batch_size: float
    iterations_done: float
    """Iterations that the job had done at that moment."""


@value
class Regime:
    """A part of a job's work with a constant global batch size."""

    batch_size: float
    """Global batch size; NaN: not known."""
    start: float
    """Iterations done at the start of the regime."""
    end: float
    """Iterations done at the end of the regime."""


@value
class Adaptations:
    """The adaptations of one job in chronological order, at most ``MOST_ADAPTATIONS`` of them."""

    first_batch_size: float
    """Global batch size before the first adaptation that is kept; NaN: not known."""
    first_iterations: float = 0.0
    """Iterations done when ``first_batch_size`` began."""
    kept: tuple[Adaptation, ...] = ()
    dropped: int = 0
    """Number of older adaptations that are not kept."""
    floor: float = 0.0
    """Lower bound on the iterations of the next adaptation: those of the last one, or fewer if the job has since
    resumed from an earlier checkpoint."""

    @property
    def count(self) -> int:
        """Return the total number of adaptations of the job, including those not kept."""
        return self.dropped + len(self.kept)

    def then(self, adaptation: Adaptation) -> "Adaptations":
        """Return the history with one more adaptation; the oldest is dropped if there are too many."""
        batch, start, kept, dropped = self.first_batch_size, self.first_iterations, self.kept, self.dropped
        if len(kept) == MOST_ADAPTATIONS:
            batch, start = kept[0].batch_size, kept[0].iterations_done
            kept, dropped = kept[1:], dropped + 1
        return Adaptations(
            first_batch_size=batch,
            first_iterations=start,
            kept=(*kept, adaptation),
            dropped=dropped,
            floor=adaptation.iterations_done,
        )

    def back_to(self, iterations: float) -> "Adaptations":
        """Return the history after the job reported ``iterations``; a number below ``floor`` becomes the new floor."""
        if iterations >= self.floor:
            return self
        return replace(self, floor=iterations)

    def regimes(self, iterations_done: float) -> tuple[Regime, ...]:
        """Return the regimes of the job's valid work, in order; the last one is the present regime.

        Work that was lost when the job resumed from a checkpoint is left out with its adaptations, as are empty
        regimes except the last.

        Args:
            iterations_done: the job's iterations so far; adaptations at more iterations belong to lost work.
        """
        regimes: list[Regime] = []
        end = iterations_done
        changes = [(self.first_iterations, self.first_batch_size)]
        changes += [(one.iterations_done, one.batch_size) for one in self.kept]
        for start, batch in reversed(changes):
            if start < end or (start == end and not regimes):
                regimes.append(Regime(batch_size=batch, start=start, end=end))
                end = start
        return tuple(reversed(regimes))
