"""Successive halving that pauses and promotes (Jamieson and Talwalkar 2016; Themis §4.3.2).

All trials of a phase run to the same iteration, the rung, and pause there. When the last has arrived, the best 1/eta of
them go on from their checkpoints, with up to eta times as many slots each, and the others are over. With n trials there
are floor(log_eta n) + 1 phases; the last one's survivors run to their end.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Action, JobInfo, JsonState, Run, Search, Trial, check_grid
from eunomia_hpo_adapters.scoreboard import Scoreboard


class SuccessiveHalvingOptions(BaseModel):
    """Options of successive halving."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reduction_factor: int = Field(default=2, ge=2, le=64)
    """eta: one trial of so many goes on from a rung."""
    rungs: Literal["geometric", "equal_budget"] = "geometric"
    """Where the rungs are. ``geometric``: the last is max_iterations, each before it 1/eta of the next.
    ``equal_budget``: each phase takes eta times the iterations of the one before, so that all cost the same (Themis
    §4.3.3)."""
    demand: Literal["growing", "full"] = "growing"
    """``growing``: a trial can use eta times as many slots in each phase as in the one before, from its least to its
    most (Themis §4.3.2). ``full``: its most in every phase (§4.3.3)."""


def phase_sizes(trials: int, reduction_factor: int) -> list[int]:
    """Return how many trials run in each phase: n, n/eta, n/eta^2 ... rounded down, as long as there is one."""
    sizes = [trials]
    while sizes[-1] // reduction_factor >= 1:
        sizes.append(sizes[-1] // reduction_factor)
    return sizes


def geometric_rungs(max_iterations: int, phases: int, reduction_factor: int) -> list[int]:
    """Return the iteration at which each phase ends: max_iterations / eta^(phases - 1 - i), rounded."""
    return [round(max_iterations / reduction_factor ** (phases - 1 - phase)) for phase in range(phases)]


def equal_budget_rungs(max_iterations: int, phases: int, reduction_factor: int) -> list[int]:
    """Return the iteration at which each phase ends, when each takes eta times as many iterations as the one before.

    The unit is rounded down and the last phase takes the rest: 60 iterations in three phases are 8, 16 and 36.
    """
    parts = [reduction_factor**phase for phase in range(phases)]
    unit = max_iterations // sum(parts)
    ends = [unit * sum(parts[: phase + 1]) for phase in range(phases)]
    ends[-1] = max_iterations
    return ends


class SuccessiveHalving:
    """Synchronous successive halving. Trials that failed or whose metric is not finite are never promoted."""

    options_type: ClassVar[type] = SuccessiveHalvingOptions
    needs_metric: ClassVar[bool] = True
    needs_max_iterations: ClassVar[bool] = True
    listens: ClassVar[bool] = False
    """Points between pauses change nothing; a simulator need not make them."""

    def __init__(self, search: Search, options: SuccessiveHalvingOptions, ends: Sequence[int]) -> None:
        self._search = search
        self._options = options
        self._trials = tuple(search.trial(number) for number in range(1, search.trials + 1))
        self._sizes = phase_sizes(search.trials, options.reduction_factor)
        self._ends = tuple(ends)
        self._scores = Scoreboard(search)
        self._phase = 0
        self._members = [trial.number for trial in self._trials]
        self._arrived: set[int] = set()
        self._finished: set[int] = set()
        self._failed: set[int] = set()
        self._rungs = dict.fromkeys(self._members, 0)

    @classmethod
    def create(cls, search: Search, options: SuccessiveHalvingOptions) -> Self:
        """See the port.

        Raises:
            InputError: no metric, no max_iterations, fewer than two trials, or rungs less than an iteration apart.
        """
        if search.metric is None or search.max_iterations is None:
            raise InputError("successive_halving must know metric and max_iterations", value="none")
        if search.trials < 2:
            raise InputError("trials must be at least 2 for successive_halving", value=str(search.trials))
        check_grid(search)
        phases = len(phase_sizes(search.trials, options.reduction_factor))
        place_rungs = geometric_rungs if options.rungs == "geometric" else equal_budget_rungs
        ends = place_rungs(search.max_iterations, phases, options.reduction_factor)
        if any(end <= start for start, end in zip([0, *ends], ends, strict=False)):
            rule = f"max_iterations must leave at least one iteration to each of the {phases} phases"
            raise InputError(rule, value=f"{search.max_iterations}, that is rungs at {', '.join(map(str, ends))}")
        return cls(search, options, ends)

    # -- what is told

    def trials(self) -> Sequence[Trial]:
        """See the port."""
        return self._trials

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """See the port; nobody is judged between rungs."""
        self._scores.note(trial, metric)
        return Action.CONTINUE

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """See the port."""
        self._scores.note(trial, metric)
        self._arrive(trial)

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """See the port; a trial whose script ends before its rung keeps its rank in all later ones."""
        self._scores.note(trial, metric)
        self._finished.add(trial)
        self._arrive(trial)

    def on_failed(self, trial: int) -> None:
        """See the port."""
        self._failed.add(trial)
        self._arrive(trial)

    def _arrive(self, trial: int) -> None:
        if trial in self._members:
            self._arrived.add(trial)
        while self._members and self._arrived.issuperset(self._members):
            self._promote()

    def _promote(self) -> None:
        """Take the best of this phase into the next; those whose script has ended have arrived there too."""
        self._phase += 1
        if self._phase == len(self._sizes):
            self._members = []
            return
        fit = [trial for trial in self._members if trial not in self._failed and self._scores.is_finite(trial)]
        self._members = sorted(self._scores.ranking(fit)[: self._sizes[self._phase]])
        self._arrived = self._finished.intersection(self._members)
        self._rungs.update(dict.fromkeys(self._members, self._phase))

    # -- what is wanted

    def runs(self) -> Sequence[Run]:
        """See the port: those that have not arrived at the rung, by number."""
        last = self._phase == len(self._sizes) - 1
        stop_at = None if last or not self._members else self._ends[self._phase]
        most = self._most(self._phase)
        return [
            Run(trial=trial, stop_at=stop_at, least=self._search.least, most=most)
            for trial in self._members
            if trial not in self._arrived
        ]

    def ended(self) -> Sequence[int]:
        """See the port."""
        alive = set(self._members) - self._finished - self._failed
        return [trial.number for trial in self._trials if trial.number not in alive]

    def is_done(self) -> bool:
        """See the port."""
        return not self._members

    def rung(self, trial: int) -> int | None:
        """See the port."""
        return self._rungs[trial]

    def best(self) -> int | None:
        """See the port."""
        return self._scores.best()

    # -- Figure 7

    def num_phases(self) -> int:
        """See the port."""
        return 0 if self.is_done() else len(self._sizes) - self._phase

    def jobs_in_phase(self, phase: int, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See the port."""
        if phase == 0:
            return self.jobs_remaining(done)
        index = self._phase + phase
        alive = sum(trial not in self._failed for trial in self._members)
        info = JobInfo(
            trial=None,
            iterations_left=float(self._ends[index] - self._ends[index - 1]),
            least=self._search.least,
            most=self._most(index),
        )
        return [info] * min(self._sizes[index], max(alive, 1))

    def jobs_remaining(self, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See the port."""
        most = self._most(self._phase)
        return [
            JobInfo(trial=trial, iterations_left=self._left(trial, done), least=self._search.least, most=most)
            for trial in self._members
            if trial not in self._failed
        ]

    def _left(self, trial: int, done: Mapping[int, float]) -> float:
        if trial in self._arrived:
            return 0.0
        return max(self._ends[self._phase] - done.get(trial, 0.0), 0.0)

    def _most(self, phase: int) -> int:
        if self._options.demand == "full":
            return self._search.most
        growth: int = self._options.reduction_factor**phase
        return min(self._search.least * growth, self._search.most)

    # -- memory

    def state(self) -> JsonState:
        """See the port."""
        return {
            "phase": self._phase,
            "members": list(self._members),
            "arrived": sorted(self._arrived),
            "finished": sorted(self._finished),
            "failed": sorted(self._failed),
            "rungs": {str(trial): rung for trial, rung in self._rungs.items()},
            "scores": self._scores.state(),
        }

    def restore(self, state: JsonState) -> None:
        """See the port."""
        self._phase = state["phase"]
        self._members = list(state["members"])
        self._arrived = set(state["arrived"])
        self._finished = set(state["finished"])
        self._failed = set(state["failed"])
        self._rungs = {int(trial): rung for trial, rung in state["rungs"].items()}
        self._scores.restore(state["scores"])
