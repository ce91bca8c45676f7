"""One run of successive halving: trials run from rung to rung, and the best at each rung are promoted.

Synchronous (Jamieson and Talwalkar 2016; Li et al. 2018): when the last trial has arrived at a rung, the best are
promoted. Asynchronous (ASHA; Li et al. 2020, Algorithm 2): a trial among the best 1/eta of those that have arrived at
its rung so far is promoted at once, and stays promoted whichever trials arrive later.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from eunomia_appmaster.tuner import JsonState


def phase_sizes(trials: int, reduction_factor: int) -> list[int]:
    """Return the number of trials in each phase: n, n/eta, n/eta^2 ..., rounded down, as long as it is at least 1."""
    sizes = [trials]
    while sizes[-1] // reduction_factor >= 1:
        sizes.append(sizes[-1] // reduction_factor)
    return sizes


class Bracket:
    """The rungs of one successive halving, and its trials' positions on them.

    Args:
        members: numbers of the trials.
        ends: iterations at which phases end, ascending; trials end at the last one.
        reduction_factor: eta.
        asynchronous: whether trials are promoted without waiting for all others.
        better_first: sort key for metrics: better ones first; non-finite ones last, as inf.
    """

    def __init__(
        self,
        members: Sequence[int],
        ends: Sequence[int],
        *,
        reduction_factor: int,
        asynchronous: bool,
        better_first: Callable[[float], float],
    ) -> None:
        self.ends = tuple(ends)
        self.sizes: list[int] = [max(len(members) // reduction_factor**level, 1) for level in range(len(ends))]
        self._factor, self._asynchronous, self._better_first = reduction_factor, asynchronous, better_first
        self._level = dict.fromkeys(members, 0)
        self._running: list[set[int]] = [set(members), *(set[int]() for _ in ends[1:])]
        """The trials that run towards each rung."""
        self.changed = set(members)
        """Trials that were added, arrived, were promoted or failed since the caller last cleared the set."""
        self._arrived: list[dict[int, float]] = [{} for _ in ends]
        """The metrics of trials on arrival at each rung."""
        self._finished: set[int] = set()
        self._failed: set[int] = set()
        self._dropped: set[int] = set()

    # -- results

    def arrive(self, trial: int, metric: float, *, finished: bool = False) -> None:
        """Record that a trial arrived at its rung; ``finished``: its script has ended, perhaps before the rung."""
        if finished:
            self._finished.add(trial)
        if self.is_active(trial):
            self._arrived[self._level[trial]][trial] = metric
            self._leave(trial)
            self._settle()

    def fail(self, trial: int) -> None:
        """Record that a trial failed, so that it is not promoted again."""
        self._failed.add(trial)
        self._leave(trial)
        self._settle()

    def _leave(self, trial: int) -> None:
        self._running[self._level[trial]].discard(trial)
        self.changed.add(trial)

    def _settle(self) -> None:
        """Promote until no trial can be promoted, and end trials that can never be promoted."""
        while promoted := list(self._promotable()):
            for trial in promoted:
                self._promote(trial)
        closed = self.lowest_level
        for level, arrived in enumerate(self._arrived[:-1]):
            if closed is None or level < closed:
                self._dropped.update(trial for trial in arrived if self._level[trial] == level)

    def _promote(self, trial: int) -> None:
        """Move a trial to the next rung; if its script has ended, it arrives there at once."""
        level = self._level[trial]
        self._level[trial] = level + 1
        self.changed.add(trial)
        if trial in self._finished:
            self._arrived[level + 1][trial] = self._arrived[level][trial]
        else:
            self._running[level + 1].add(trial)

    def _promotable(self) -> Iterator[int]:
        lowest = self.lowest_level
        for level in reversed(range(len(self.ends) - 1)):
            is_closed = lowest is None or level < lowest
            if not self._asynchronous and not is_closed:
                continue
            best = self._best(level, is_closed=is_closed)
            yield from (trial for trial in best if self._level[trial] == level and trial not in self._failed)

    def _best(self, level: int, *, is_closed: bool) -> list[int]:
        """Return the trials to promote from a rung; at least one is promoted if no more trials can arrive."""
        arrived = self._arrived[level]
        fit = sorted(
            (trial for trial, metric in arrived.items() if math.isfinite(metric)),
            key=lambda trial: (self._better_first(arrived[trial]), trial),
        )
        if not self._asynchronous:
            return fit[: self.sizes[level + 1]]
        places = len(arrived) // self._factor
        promoted = any(self._level[trial] > level for trial in arrived)
        return fit[: places if promoted or not is_closed else max(places, 1)]

    # -- state of trials

    def is_active(self, trial: int) -> bool:
        """Return whether the trial has not reached its rung yet."""
        return trial in self._running[self._level[trial]]

    def is_over(self, trial: int) -> bool:
        """Return whether the trial will not run again."""
        return trial in self._finished or trial in self._failed or trial in self._dropped

    @property
    def active(self) -> list[int]:
        """Return the trials that have not reached their rung, by number."""
        return sorted(trial for running in self._running for trial in running)

    @property
    def paused(self) -> list[int]:
        """Return the trials that are paused at their rung and may still be promoted."""
        return [trial for trial in self._level if not self.is_over(trial) and not self.is_active(trial)]

    @property
    def members(self) -> list[int]:
        """Return all trials of the bracket, by number."""
        return list(self._level)

    def level(self, trial: int) -> int:
        """Return the rung, counted from 0, to which a trial runs or at which it has ended."""
        return self._level[trial]

    @property
    def lowest_level(self) -> int | None:
        """Return the lowest rung at which a trial may still arrive; None: the bracket has ended."""
        return next((level for level, running in enumerate(self._running) if running), None)

    def expected(self, level: int) -> int:
        """Return the number of trials, not yet chosen, that will run to a rung above the lowest."""
        lowest = self.lowest_level
        if lowest is None or level <= lowest:
            return 0
        if not self._asynchronous:
            alive = sum(not self.is_over(trial) for trial in self._level)
            return min(self.sizes[level], max(alive, 1))
        entered = [sum(at >= rung for at in self._level.values()) for rung in range(len(self.ends))]
        places = len(self._level) - len(self._failed)
        for rung in range(1, level + 1):
            places = max(places // self._factor, entered[rung], 1)
        return places - entered[level]

    # -- persistence

    def state(self) -> JsonState:
        """Return the state for ``restore``; null represents a metric that is not finite."""
        return {
            "level": {str(trial): level for trial, level in self._level.items() if level},
            "arrived": [
                {str(trial): metric if math.isfinite(metric) else None for trial, metric in arrived.items()}
                for arrived in self._arrived
            ],
            "finished": sorted(self._finished),
            "failed": sorted(self._failed),
            "dropped": sorted(self._dropped),
        }

    def restore(self, state: JsonState) -> None:
        """Continue from ``state``."""
        self._level = dict.fromkeys(self._level, 0) | {int(trial): level for trial, level in state["level"].items()}
        self._arrived = [
            {int(trial): math.nan if metric is None else metric for trial, metric in dict(arrived).items()}
            for arrived in state["arrived"]
        ]
        self._finished = set(state["finished"])
        self._failed = set(state["failed"])
        self._dropped = set(state["dropped"])
        self._running = [set() for _ in self.ends]
        over = self._failed | self._dropped
        for trial, level in self._level.items():
            if trial not in over and trial not in self._arrived[level]:
                self._running[level].add(trial)
        self.changed = set(self._level)
