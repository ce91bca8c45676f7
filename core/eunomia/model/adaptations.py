"""The history of a job's adaptations: when its batch size changed, to what, and at how many iterations."""

import math
from dataclasses import replace
from enum import IntEnum
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import Seconds

MOST_ADAPTATIONS: Final = 256
"""Adaptations of a job that are kept; of more, the oldest are only counted."""


MOST_BATCH_SIZE: Final = 1e15
"""Largest batch size that a script may announce."""


def is_batch_size(given: object) -> bool:
    """Return whether a value can be a batch size: a number above 0, at most ``MOST_BATCH_SIZE``."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return False
    return 0.0 < given <= MOST_BATCH_SIZE  # NaN is not


class Adapts(IntEnum):
    """How a job changes its batch size while it trains, as declared."""

    UNKNOWN = 0
    STATIC = 1
    """The batch size stays as it is."""
    ACCORDION = 2
    """Between a small and a large batch size, by critical regimes (Accordion)."""
    GNS = 3
    """The batch size grows with the gradient noise scale."""
    OTHER = 4


MODES: Final = tuple(mode.name.lower() for mode in Adapts if mode is not Adapts.UNKNOWN)
"""The modes as app files, traces and messages write them."""


def adapts_named(word: str | None, *, place: str | None = None) -> Adapts:
    """Return the mode of a word; None or an empty word: unknown.

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
    """A stretch of a job's work after the present one, with a batch size and a speed of its own."""

    iterations: float
    """Iterations of the stretch, as the job's work counts them."""
    rate: float
    """Iterations a second at the job's largest size, in one island; 0: it does not run."""
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
    """A stretch of a job's work with one global batch size."""

    batch_size: float
    """NaN: not known."""
    start: float
    """Iterations done at its start."""
    end: float
    """Iterations done at its end."""


@value
class Adaptations:
    """The adaptations of one job in order of time, at most ``MOST_ADAPTATIONS`` of them."""

    first_batch_size: float
    """Global batch size before the first adaptation that is kept; NaN: not known."""
    first_iterations: float = 0.0
    """Iterations done when ``first_batch_size`` began."""
    kept: tuple[Adaptation, ...] = ()
    dropped: int = 0
    """Number of older adaptations that are not kept."""
    floor: float = 0.0
    """Least iterations at which the next adaptation can come: those of the last one, or of a job that has since gone
    back to a checkpoint, the fewest that it reported."""

    @property
    def count(self) -> int:
        """Number of adaptations of the job, those not kept included."""
        return self.dropped + len(self.kept)

    def then(self, adaptation: Adaptation) -> "Adaptations":
        """Return the history with one more adaptation; beyond the bound the oldest is dropped."""
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
        """Return the history after a report of these iterations: fewer than at the last adaptation lower the floor."""
        if iterations >= self.floor:
            return self
        return replace(self, floor=iterations)

    def regimes(self, iterations_done: float) -> tuple[Regime, ...]:
        """Return the stretches of the work that stands, in order; the last one goes on.

        Work that a job lost by going back to a checkpoint, and the adaptations in it, are left out, as are stretches
        without an iteration other than the last.

        Args:
            iterations_done: by the job until now; what lies beyond is lost work.
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
