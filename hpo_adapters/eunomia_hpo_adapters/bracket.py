"""One successive halving: members run from rung to rung, and the best of each go on.

Synchronous (Jamieson and Talwalkar 2016; Li et al. 2018): when the last member has arrived at a rung, the best of them
are promoted. Asynchronous (ASHA; Li et al. 2020, Algorithm 2): whoever is among the best 1/eta of those that have
arrived at its rung so far is promoted at once, and stays so whoever comes later.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from eunomia_appmaster.tuner import JsonState


def phase_sizes(trials: int, reduction_factor: int) -> list[int]:
    """Return how many trials run in each phase: n, n/eta, n/eta^2 ... rounded down, as long as there is one."""
    sizes = [trials]
    while sizes[-1] // reduction_factor >= 1:
        sizes.append(sizes[-1] // reduction_factor)
    return sizes


class Bracket:
    """Who is where.

    Args:
        members: numbers of its trials.
        ends: iterations at which its phases end, ascending; the last is where a trial ends.
        reduction_factor: eta.
        asynchronous: promote without waiting for all.
        better_first: sorts the better metric first, and what is not finite last, as inf.
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
        self._arrived: list[dict[int, float]] = [{} for _ in ends]
        """By rung, the metrics with which trials arrived there."""
        self._finished: set[int] = set()
        self._failed: set[int] = set()
        self._dropped: set[int] = set()

    # -- what is told

    def arrive(self, trial: int, metric: float, *, finished: bool = False) -> None:
        """Hear that a trial has come to its rung; ``finished``: its script has ended, perhaps before the rung."""
        if finished:
            self._finished.add(trial)
        if self.is_active(trial):
            self._arrived[self._level[trial]][trial] = metric
            self._settle()

    def fail(self, trial: int) -> None:
        """Hear that a trial has failed: it is promoted no more."""
        self._failed.add(trial)
        self._settle()

    def _settle(self) -> None:
        """Promote until nobody is to be promoted, and end those that never will be."""
        while promoted := list(self._promotable()):
            for trial in promoted:
                self._promote(trial)
        closed = self.lowest_level
        for level, arrived in enumerate(self._arrived[:-1]):
            if closed is None or level < closed:
                self._dropped.update(trial for trial in arrived if self._level[trial] == level)

    def _promote(self, trial: int) -> None:
        """Take a trial to the next rung; one whose script has ended has arrived there, too."""
        level = self._level[trial]
        self._level[trial] = level + 1
        if trial in self._finished:
            self._arrived[level + 1][trial] = self._arrived[level][trial]

    def _promotable(self) -> Iterator[int]:
        lowest = self.lowest_level
        for level in reversed(range(len(self.ends) - 1)):
            is_closed = lowest is None or level < lowest
            if not self._asynchronous and not is_closed:
                continue
            best = self._best(level, is_closed=is_closed)
            yield from (trial for trial in best if self._level[trial] == level and trial not in self._failed)

    def _best(self, level: int, *, is_closed: bool) -> list[int]:
        """The trials that have earned the next rung; where no more can come, at least one does."""
        arrived = self._arrived[level]
        fit = sorted(
            (trial for trial, metric in arrived.items() if math.isfinite(metric)),
            key=lambda trial: (self._better_first(arrived[trial]), trial),
        )
        if not self._asynchronous:
            return fit[: self.sizes[level + 1]]
        places = len(arrived) // self._factor
        gone_on = any(self._level[trial] > level for trial in arrived)
        return fit[: places if gone_on or not is_closed else max(places, 1)]

    # -- what is so

    def is_active(self, trial: int) -> bool:
        """Whether it has a way to go to its rung."""
        return (
            trial not in self._failed and trial not in self._dropped and trial not in self._arrived[self._level[trial]]
        )

    def is_over(self, trial: int) -> bool:
        """Whether it will not run any more."""
        return trial in self._finished or trial in self._failed or trial in self._dropped

    @property
    def active(self) -> list[int]:
        """Members that have a way to go, by number."""
        return [trial for trial in self._level if self.is_active(trial)]

    @property
    def standing(self) -> list[int]:
        """Members that stand at their rung and may be promoted yet."""
        return [trial for trial in self._level if not self.is_over(trial) and not self.is_active(trial)]

    @property
    def members(self) -> list[int]:
        """All of them, by number."""
        return list(self._level)

    def level(self, trial: int) -> int:
        """The rung, from 0, to which a trial runs or at which it ended."""
        return self._level[trial]

    @property
    def lowest_level(self) -> int | None:
        """The lowest rung at which somebody may arrive yet; None: the bracket is done."""
        return min((self._level[trial] for trial in self._level if self.is_active(trial)), default=None)

    def expected(self, level: int) -> int:
        """How many trials that are not chosen yet will go for a rung above the lowest."""
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

    # -- memory

    def state(self) -> JsonState:
        """Return all that ``restore`` needs; null stands for a metric that is not finite."""
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
        """Go on from ``state``."""
        self._level = dict.fromkeys(self._level, 0) | {int(trial): level for trial, level in state["level"].items()}
        self._arrived = [
            {int(trial): math.nan if metric is None else metric for trial, metric in dict(arrived).items()}
            for arrived in state["arrived"]
        ]
        self._finished = set(state["finished"])
        self._failed = set(state["failed"])
        self._dropped = set(state["dropped"])
