"""Selects the next cell of a plan to run: all in order, or runs and resamples within a CPU-time budget."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from eunomia.model.shapes import value
from eunomia_testbed.evidence.intervals import FEWEST_RESAMPLES
from eunomia_testbed.running.plan import Cell

OVERRUN: Final = 1.1
"""Factor by which the run may exceed the budget to reach the fewest resamples for an interval."""
GROWTH: Final = 1.5
"""Factor between successive numbers of resamples at which the run checks whether they suffice."""


class Source(Protocol):
    """A source of cells to run; the choice of later cells may depend on the results of earlier ones."""

    def next(self) -> Cell | None:
        """Return the next cell; None: no cell until a running cell ends; if none runs, no more cells."""
        ...

    def ended(self, cell: Cell, cpu_seconds: float, *, failed: bool) -> None:
        """Record that a cell has ended, with its CPU seconds and whether it failed."""
        ...


class InOrder:
    """A source that returns all cells in order."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._left = deque(cells)
        self.spent_seconds = 0.0

    def next(self) -> Cell | None:
        """Return the next cell; None: there is none left."""
        return self._left.popleft() if self._left else None

    def ended(self, cell: Cell, cpu_seconds: float, *, failed: bool) -> None:
        """Add the CPU seconds of an ended cell."""
        self.spent_seconds += cpu_seconds


@value
class Limits:
    """The conditions that end resampling before the requested number is reached.

    Attributes:
        budget_seconds: CPU time of the whole run, in all processes; inf: no limit.
        enough: returns whether a number of resamples, finished by all policies, suffices; None: run all.
    """

    budget_seconds: float = math.inf
    enough: Callable[[int], bool] | None = None


class Rationed:
    """A source of runs of the trace, then of equally many resamples for every policy, within a budget of CPU time.

    If the budget is too small for every policy to get the fewest resamples that give an interval, the slowest policies
    are dropped from resampling, one after another, until it suffices. A resample's CPU time is estimated from the run
    of the trace and finished resamples, so no policy is resampled before its run of the trace has ended.

    Args:
        cells: the cells that have not finished.
        count: the number of resamples requested.
        done: policy and number of each resample that earlier runs of the folder finished.
        limits: the conditions that end resampling earlier.
    """

    def __init__(self, cells: Sequence[Cell], count: int, done: Collection[tuple[str, int]], limits: Limits) -> None:
        self._first = deque(cell for cell in cells if not cell.resampled)
        self._resamples = {(cell.policy, cell.seed): cell for cell in cells if cell.resampled}
        self._count, self._done, self._limits = count, set(done), limits
        self._kept = list(dict.fromkeys(cell.policy for cell in cells))
        self._reached = dict.fromkeys(self._kept, 0)
        self._costs: dict[str, list[float]] = {policy: [] for policy in self._kept}
        self._running: set[Cell] = set()
        self._stage = count if limits.enough is None else min(count, FEWEST_RESAMPLES)
        self._over = False
        self.spent_seconds = 0.0
        self.without: list[str] = []
        """Policies dropped from resampling because of the budget, the slowest first."""
        self.cut = False
        """Whether the budget ended resampling."""
        self.suffice = False
        """Whether the resamples were found to suffice."""

    @property
    def needed_seconds(self) -> float:
        """Return the estimated CPU seconds for every policy to get the fewest resamples for an interval."""
        return self.spent_seconds + math.fsum(self._to_reach(policy, FEWEST_RESAMPLES) for policy in self._reached)

    def next(self) -> Cell | None:
        """Return the next run or resample within the budget; None: as in ``Source``."""
        if self._first:
            return self._given(self._first.popleft())
        while not self._over:
            policy = self._behind()
            if policy is None:
                return None
            number = self._reached[policy] + 1
            if number > self._stage:
                if self._running:
                    return None
                self._next_stage()
            elif number > FEWEST_RESAMPLES and self._on_trace():
                return None  # the CPU time of the other policies is not known yet
            elif self._fits(number):
                self._reached[policy] = number
                if (policy, number) not in self._done:
                    return self._given(self._resamples[policy, number])
            elif number <= FEWEST_RESAMPLES:
                self._drop_slowest()
            else:
                self.cut = self._over = True
        return None

    def ended(self, cell: Cell, cpu_seconds: float, *, failed: bool) -> None:
        """Record the CPU seconds of an ended cell; a policy that fails on the trace itself is not resampled."""
        self._running.discard(cell)
        self.spent_seconds += cpu_seconds
        self._costs[cell.policy].append(cpu_seconds)
        if failed and not cell.resampled and cell.policy in self._kept:
            self._kept.remove(cell.policy)

    def _given(self, cell: Cell) -> Cell:
        self._running.add(cell)
        return cell

    def _behind(self) -> str | None:
        """Return the policy with the fewest resamples whose run of the trace has ended; None: there is none."""
        waiting = self._on_trace()
        ready = [policy for policy in self._kept if policy not in waiting]
        if not ready and not waiting:
            self._over = True
        return min(ready, key=self._reached.__getitem__, default=None)

    def _on_trace(self) -> set[str]:
        """Return the policies whose run of the trace is still running."""
        return {cell.policy for cell in self._running if not cell.resampled}

    def _next_stage(self) -> None:
        """Check whether the finished resamples suffice; if not, raise the number of resamples to reach."""
        self.suffice = self._limits.enough is not None and self._limits.enough(self._stage)
        self._over = self.suffice or self._stage >= self._count
        self._stage = min(self._count, math.ceil(GROWTH * self._stage))

    def _fits(self, number: int) -> bool:
        """Return whether the budget suffices for this number of resamples per policy, at least the fewest."""
        under_way = math.fsum(self._cost(cell.policy) for cell in self._running)
        target = max(number, FEWEST_RESAMPLES)
        needed = under_way + math.fsum(self._to_reach(policy, target) for policy in self._kept)
        begun = number <= FEWEST_RESAMPLES and all(self._reached[policy] for policy in self._kept)
        return self.spent_seconds + needed <= self._limits.budget_seconds * (OVERRUN if begun else 1.0)

    def _to_reach(self, policy: str, number: int) -> float:
        left = range(self._reached[policy] + 1, number + 1)
        return self._cost(policy) * sum((policy, each) not in self._done for each in left)

    def _cost(self, policy: str) -> float:
        """Return the mean CPU seconds of a policy's finished cells; 0: none has finished."""
        found = self._costs[policy]
        return math.fsum(found) / len(found) if found else 0.0

    def _drop_slowest(self) -> None:
        """Drop the policy with the most CPU time left to the fewest resamples for an interval."""
        slowest = max(self._kept, key=lambda policy: self._to_reach(policy, FEWEST_RESAMPLES))
        self._kept.remove(slowest)
        self.without.append(slowest)
        self.cut = True
        self._over = not self._kept
