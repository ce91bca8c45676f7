"""The base of successive-halving tuners: concurrent brackets, and their forecasts (Themis, Figure 7).

The phases of a forecast end at rungs, counted in iterations. A trial in a bracket with a higher first rung is in
several phases, with a part of its iterations in each. Thus the work is exact, and no trial exceeds its total length.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Literal

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Action, JobInfo, JsonState, Search, Trial, TrialRun, check_grid
from eunomia_hpo_adapters.bracket import Bracket
from eunomia_hpo_adapters.run_order import RunOrder
from eunomia_hpo_adapters.scoreboard import Scoreboard
from eunomia_hpo_adapters.trials import Trials

Demand = Literal["growing", "full"]


def check_search(search: Search, kind: str) -> int:
    """Return the ``max_iterations`` of a search after checking that it can be halved.

    Raises:
        InputError: there is no metric or no max_iterations, fewer than two trials, or a grid with fewer points than
            trials.
    """
    if search.metric is None or search.max_iterations is None:
        raise InputError(f"{kind} must know metric and max_iterations", value="none")
    if search.trials < 2:
        raise InputError(f"trials must be at least 2 for {kind}", value=str(search.trials))
    check_grid(search)
    return search.max_iterations


def check_rungs(ends: Sequence[int], max_iterations: int) -> None:
    """Check that rungs are at least one iteration apart.

    Raises:
        InputError: some rungs are less than an iteration apart.
    """
    if any(end <= start for start, end in pairwise([0, *ends])):
        rule = f"max_iterations must leave at least one iteration to each of the {len(ends)} phases"
        raise InputError(rule, value=f"{max_iterations}, that is rungs at {', '.join(map(str, ends))}")


class Halving:
    """A tuner with concurrent brackets; trials that failed or have a non-finite metric are never promoted.

    Args:
        search: the search.
        brackets: groups of trials that are halved together, with consecutive numbers.
        rungs: iterations of all rungs, ascending; each bracket's rungs are some of them, including the last.
        growth: factor by which the number of GPUs that a trial can use grows from rung to rung; 1: a trial can always
            use its maximum.
    """

    needs_metric: ClassVar[bool] = True
    needs_max_iterations: ClassVar[bool] = True
    takes_more_trials: ClassVar[bool] = True
    grows_by_bracket: ClassVar[bool] = False
    """Whether a trial's GPUs grow at the rungs of its own bracket, instead of those of all brackets."""
    listens: ClassVar[bool] = False
    """Whether metrics between pauses have an effect; if not, a simulator need not compute them."""

    def __init__(self, search: Search, brackets: Sequence[Bracket], rungs: Sequence[int], *, growth: int) -> None:
        self._search = search
        self._trials = Trials(search)
        self._scores = Scoreboard(search)
        self._brackets = list(brackets)
        self._bracket = {number: bracket for bracket in brackets for number in bracket.members}
        self._rungs = tuple(rungs)
        self._index_of = {end: index for index, end in enumerate(rungs)}
        self._growth = growth
        self._known: tuple[dict[int, float], list[list[JobInfo]]] | None = None
        """A cache of the last forecast and its input."""
        self._order = RunOrder()
        self._ordered = 0
        """Trials up to this number have been placed in the run order, if they run."""

    # -- results

    def trials(self) -> Sequence[Trial]:
        """See ``Tuner``."""
        return self._trials.made

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """See ``Tuner``; no trial is judged between rungs."""
        self._scores.note(trial, metric)
        return Action.CONTINUE

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``."""
        self._arrive(trial, metric)

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``; a trial that finishes before its rung keeps its rank in all later rungs."""
        self._arrive(trial, metric, finished=True)

    def _arrive(self, trial: int, metric: float | None, *, finished: bool = False) -> None:
        self._scores.note(trial, metric)
        self._known = None
        self._bracket[trial].arrive(trial, self._scores.last(trial), finished=finished)
        self._trials.tell(trial, self._scores.last(trial))

    def on_failed(self, trial: int) -> None:
        """See ``Tuner``."""
        self._known = None
        self._bracket[trial].fail(trial)
        self._trials.tell(trial, None)

    # -- runs

    def runs(self) -> Sequence[TrialRun]:
        """See ``Tuner``; trials that have not reached their rung, those at higher rungs first, then by number."""
        made = len(self._trials)
        changed = set(range(self._ordered + 1, made + 1))
        for bracket in self._brackets:
            changed |= bracket.changed
            bracket.changed = set()
        self._ordered = made
        for trial in changed:
            bracket = self._bracket[trial]
            if trial <= made and bracket.is_active(trial):
                self._order.put(bracket.level(trial), self._run(trial))
            else:
                self._order.drop(trial)
        return self._order.runs()

    def _active(self, bracket: Bracket) -> list[int]:
        """Return the trials of a bracket that have not reached their rung and already have parameters."""
        return [trial for trial in bracket.active if trial <= len(self._trials)]

    def _run(self, trial: int) -> TrialRun:
        bracket = self._bracket[trial]
        level = bracket.level(trial)
        last = level == len(bracket.ends) - 1
        return TrialRun(
            trial=trial,
            stop_at=None if last else bracket.ends[level],
            least=self._search.least,
            most=self._most(bracket, level),
        )

    def ended(self) -> Sequence[int]:
        """See ``Tuner``."""
        return [trial.number for trial in self._trials.made if self._bracket[trial.number].is_over(trial.number)]

    def is_done(self) -> bool:
        """See ``Tuner``."""
        return all(bracket.lowest_level is None for bracket in self._brackets)

    def rung(self, trial: int) -> int | None:
        """See ``Tuner``; the rung within the trial's bracket."""
        return self._bracket[trial].level(trial)

    def best(self) -> int | None:
        """See ``Tuner``."""
        return self._scores.best()

    # -- forecasts (Themis, Figure 7)

    @property
    def falls_with_work(self) -> bool:
        """Return whether, between decisions, the work left in each phase falls only by the work that trials do.

        With several brackets, a trial passes rungs of others on its way, and enters a later phase there.
        """
        return len(self._brackets) == 1

    def num_phases(self) -> int:
        """See ``Tuner``."""
        return len(self._phases({} if self._known is None else self._known[0]))

    def jobs_in_phase(self, phase: int, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See ``Tuner``."""
        return self._phases(done)[phase]

    def jobs_remaining(self, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See ``Tuner``; each trial runs to the rung at which it pauses next."""
        return [
            self._info(trial, bracket, bracket.ends[bracket.level(trial)] - done.get(trial, 0.0))
            for bracket in self._brackets
            for trial in self._active(bracket)
        ] + [self._info(trial, bracket, 0.0) for bracket in self._brackets for trial in bracket.paused]

    def _phases(self, done: Mapping[int, float]) -> list[list[JobInfo]]:
        """Return the remaining non-empty phases, the current one first; their number does not depend on ``done``."""
        if self._known is None or self._known[0] != done:
            self._known = (dict(done), self._make_phases(done))
        return self._known[1]

    def _make_phases(self, done: Mapping[int, float]) -> list[list[JobInfo]]:
        if self.is_done():
            return []
        first = min(self._current(bracket) for bracket in self._brackets if bracket.lowest_level is not None)
        pieces: list[list[JobInfo]] = [[] for _ in self._rungs]
        for bracket in self._brackets:
            self._add_pieces(pieces, bracket, done, first)
        current, later = pieces[first], pieces[first + 1 :]
        return [phase for phase in (current, *self._waves(), *later) if phase]

    def _current(self, bracket: Bracket) -> int:
        """Return the lowest rung to which a trial of a bracket may run."""
        return self._reach(bracket, bracket.lowest_level or 0).start

    def _waves(self) -> list[list[JobInfo]]:
        """Return the trials not suggested yet, by wave, each up to the first rung of the next trial's bracket."""
        if len(self._trials) == self._search.trials:
            return []
        bracket = self._bracket[len(self._trials) + 1]
        return self._trials.to_come(float(bracket.ends[0]), self._most(bracket, 0))

    def _add_pieces(self, pieces: list[list[JobInfo]], bracket: Bracket, done: Mapping[int, float], first: int) -> None:
        """Cut the iterations of a bracket's trials at the rungs; their current parts belong to the phase ``first``."""
        for trial in self._active(bracket):
            at, reach = done.get(trial, 0.0), self._reach(bracket, bracket.level(trial))
            now = next((rung for rung in reach if self._rungs[rung] > at), reach[-1])
            pieces[first].append(self._info(trial, bracket, self._rungs[now] - at))
            for rung in range(max(first, reach.start) + 1, reach.stop):
                way = self._rungs[rung] - max(self._rungs[rung - 1], at) if rung > now else 0.0
                pieces[rung].append(self._info(trial, bracket, way))
        pieces[first] += [self._info(trial, bracket, 0.0) for trial in bracket.paused]
        for level in range(1, len(bracket.ends)):
            chosen_later = bracket.expected(level)
            for rung in self._reach(bracket, level) if chosen_later else ():
                way = self._rungs[rung] - self._rungs[rung - 1]
                pieces[rung] += [self._info(None, bracket, way, level=level)] * chosen_later

    def _reach(self, bracket: Bracket, level: int) -> range:
        """Return the rungs of all brackets that a trial passes on the way to a rung of its own bracket."""
        return range(self._index(bracket, level - 1) + 1 if level else 0, self._index(bracket, level) + 1)

    def _info(self, trial: int | None, bracket: Bracket, way: float, *, level: int = 0) -> JobInfo:
        at = level if trial is None else bracket.level(trial)
        return JobInfo(
            trial=trial,
            iterations_left=max(float(way), 0.0),
            least=self._search.least,
            most=self._most(bracket, at),
        )

    def _index(self, bracket: Bracket, level: int) -> int:
        """Return the index of a bracket's rung among all rungs."""
        return self._index_of[bracket.ends[level]]

    def _most(self, bracket: Bracket, level: int) -> int:
        """Return the number of GPUs that a trial can use on the way to a rung of its bracket."""
        if self._growth == 1:
            return self._search.most
        rung = level if self.grows_by_bracket else self._index(bracket, level)
        return int(min(self._search.least * math.pow(self._growth, rung), self._search.most))

    # -- persistence

    def state(self) -> JsonState:
        """See ``Tuner``."""
        return {
            "brackets": [bracket.state() for bracket in self._brackets],
            "scores": self._scores.state(),
            "trials": self._trials.state(),
        }

    def restore(self, state: JsonState) -> None:
        """See ``Tuner``; brackets of groups that were added since then start from the beginning."""
        self._known = None
        for bracket, kept in zip(self._brackets[: len(state["brackets"])], state["brackets"], strict=True):
            bracket.restore(kept)
        self._scores.restore(state["scores"])
        self._trials.restore(state["trials"])
