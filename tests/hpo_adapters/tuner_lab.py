"""Tuners of every kind, and a small app master that drives them."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from eunomia_appmaster.app.space import Float, Sampler
from eunomia_appmaster.tuner import Action, Search, Speed, Tuner, forecast, load_tuner

KINDS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("none", {}),
    ("successive_halving", {}),
    ("successive_halving", {"reduction_factor": 3, "min_iterations": 3}),
    ("successive_halving", {"asynchronous": True}),
    ("successive_halving", {"asynchronous": True, "min_iterations": 4, "reduction_factor": 3}),
    ("hyperband", {"min_iterations": 8, "reduction_factor": 2}),
    ("hyperband", {"min_iterations": 5, "asynchronous": True}),
    ("curve_stopping", {}),
    ("median_stopping", {"grace_iterations": 10}),
    ("median_stopping", {"least_trials": 1, "judged_by": "average"}),
)
WHOLE = 64
"""Iterations of a trial."""


def search(trials: int, *, sampler: Sampler = "random", mode: str = "max", concurrent: int = 3, **more: Any) -> Search:
    space = {"lr": Float(low=1e-4, high=1.0, log=True), "dropout": Float(low=0.0, high=0.5, step=0.1)}
    settings: dict[str, Any] = {"space": space, "seed": 7, "least": 1, "most": 4, "max_iterations": WHOLE} | more
    return Search(
        metric="val/accuracy", mode="max" if mode == "max" else "min", trials=trials, sampler=sampler,
        max_concurrent_trials=concurrent, startup_trials=2 if sampler in ("tpe", "gp") else None, **settings,
    )  # fmt: skip


def make(kind: str, options: Mapping[str, Any], whole: Search) -> Tuner:
    found = load_tuner(kind)
    return found.create(whole, found.options_type.model_validate(options))  # type: ignore[attr-defined]


class Lab:
    """Runs trials by a seeded choice: a few iterations of one that the tuner wants, until it pauses, ends or fails.

    Checks at each step what holds of every tuner.
    """

    def __init__(self, tuner: Tuner, whole: Search, seed: int, *, nan: float = 0.1, failing: float = 0.03) -> None:
        self.tuner, self.whole, self.nan, self.failing = tuner, whole, nan, failing
        self.random = random.Random(seed)
        self.done: dict[int, int] = {}
        self.over: set[int] = set()
        self.made = 0
        self.said: list[object] = []

    def metric(self, trial: int, iteration: int) -> float:
        draws = random.Random(f"{trial} {iteration}")
        if draws.random() < self.nan:
            return math.nan
        return (trial * 37 % 11) / 11 * (1 - 1 / (1 + iteration / 8)) + 0.02 * draws.random()

    def check(self) -> None:
        """Check the invariants that the app master relies on."""
        tuner = self.tuner
        trials, runs, ended = list(tuner.trials()), list(tuner.runs()), list(tuner.ended())
        numbers = [trial.number for trial in trials]
        assert numbers == list(range(1, len(trials) + 1)) and self.made <= len(trials) <= self.whole.trials
        self.made = len(trials)
        assert self.over <= set(ended) <= set(numbers) and len(set(ended)) == len(ended)
        self.over = set(ended)
        wanted = [run.trial for run in runs]
        assert len(set(wanted)) == len(wanted)
        assert set(wanted) <= set(numbers) - self.over
        for run in runs:
            assert self.whole.least <= run.least <= run.most <= self.whole.most
            assert run.stop_at is None or self.done.get(run.trial, 0) < run.stop_at < WHOLE
        assert tuner.is_done() == (not runs), "nothing to run, and yet it is not done"
        if tuner.is_done():
            assert len(ended) == len(trials) == self.whole.trials
        self.check_figure_7(set(wanted))

    def check_figure_7(self, wanted: set[int]) -> None:
        tuner, done = self.tuner, {trial: float(at) for trial, at in self.done.items()}
        phases = [list(tuner.jobs_in_phase(phase, done)) for phase in range(tuner.num_phases())]
        assert (tuner.num_phases() == 0) == tuner.is_done()
        assert all(phases)
        remaining = {info.trial: info for info in tuner.jobs_remaining(done)}
        assert wanted <= set(remaining) and not self.over & set(remaining)
        for phase in phases:
            for info in phase:
                assert 0 <= info.iterations_left <= WHOLE
                assert self.whole.least <= info.least <= info.most <= self.whole.most
        for trial in wanted:  # no trial runs beyond its whole length, and every runnable trial has work in this phase
            asked = sum(info.iterations_left for phase in phases for info in phase if info.trial == trial)
            assert asked + done.get(trial, 0.0) <= WHOLE
            assert trial in [info.trial for info in phases[0]]
        predicted = forecast(tuner, done, {}, otherwise=Speed(seconds_per_iteration=1.0))
        assert predicted is not None and predicted.total_gpu_seconds >= sum(done.values())

    def step(self) -> bool:
        """Run one trial for a few iterations; False: the search is done."""
        self.check()
        runs = self.tuner.runs()
        if not runs:
            return False
        run = self.random.choice(runs[:4])
        trial, at = run.trial, self.done.get(run.trial, 0)
        goal = min(at + self.random.randint(1, 20), run.stop_at or WHOLE)
        self.said.append((trial, at, run.stop_at, run.most))
        if self.random.random() < self.failing:
            self.tuner.on_failed(trial)
            return True
        for iteration in range(at + 1, goal + 1):
            self.done[trial] = iteration
            action = self.tuner.on_result(trial, iteration, self.metric(trial, iteration))
            if action is not Action.CONTINUE:
                assert (trial in self.tuner.ended()) == (action is Action.STOP)
                return True
        last = self.metric(trial, goal)
        if run.stop_at is not None and goal == run.stop_at:
            self.tuner.on_paused(trial, goal, last)
        elif goal == WHOLE:
            self.tuner.on_finished(trial, goal, last)
        return True

    def restart(self, kind: str, options: Mapping[str, Any]) -> "Lab":
        """The same lab with a tuner restored from this one's state."""
        kept = json.loads(json.dumps(self.tuner.state(), allow_nan=False))
        again = Lab(make(kind, options, self.whole), self.whole, 0, nan=self.nan, failing=self.failing)
        again.tuner.restore(kept)
        again.random.setstate(self.random.getstate())
        again.done, again.over, again.made = dict(self.done), set(self.over), self.made
        again.said = list(self.said)
        return again

    def answers(self) -> list[object]:
        """All answers of the tuner."""
        tuner, done = self.tuner, {trial: float(at) for trial, at in self.done.items()}
        return [
            tuner.trials(), tuner.runs(), tuner.ended(), tuner.best(), tuner.is_done(),
            [tuner.rung(trial.number) for trial in tuner.trials()],
            [tuner.jobs_in_phase(phase, done) for phase in range(tuner.num_phases())],
            tuner.jobs_remaining(done), tuner.state(),
        ]  # fmt: skip
