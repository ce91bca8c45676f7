"""The trials of a search, either all suggested at the start, or one after another by a sampler that learns."""

import math
from collections.abc import Sequence

from eunomia_appmaster.app.space import Parameters, trial_seed
from eunomia_appmaster.tuner import JobInfo, JsonState, Search, Trial


class Trials:
    """The trials suggested so far.

    A sampler that does not learn suggests all trials at once. One that learns suggests a trial whenever fewer than
    ``max_concurrent_trials`` suggested trials have no result, so that each suggestion uses all results known by then. A
    trial's result is its last metric when it first pauses at a rung, ends, or fails.
    """

    def __init__(self, search: Search) -> None:
        self._search = search
        self._made: list[Trial] = []
        self._open: set[int] = set()
        self._learner = None
        if not search.learns:
            first, *_ = search.groups
            self._made = [search.trial(number) for number in range(1, first + 1)]
            points = {frozenset(trial.parameters.items()) for trial in self._made}
            for number in range(first + 1, search.trials + 1):
                self._made.append(search.another_trial(number, points))
                points.add(frozenset(self._made[-1].parameters.items()))
            return
        from eunomia_hpo_adapters.optuna_samplers import Learner

        self._learner = Learner(search)
        self._fill()

    @property
    def made(self) -> Sequence[Trial]:
        """Return all trials suggested so far, by number."""
        return self._made

    def __len__(self) -> int:
        """Return the number of trials suggested so far."""
        return len(self._made)

    @property
    def waves(self) -> list[int]:
        """Return the sizes of the expected groups of further trials, each with as many as run concurrently."""
        left, wave = self._search.trials - len(self._made), self._search.max_concurrent_trials
        return [min(wave, left - start) for start in range(0, left, wave)]

    def to_come(self, iterations_left: float, most: int) -> list[list[JobInfo]]:
        """Return a phase of jobs that are not suggested yet for each wave."""
        info = JobInfo(trial=None, iterations_left=iterations_left, least=self._search.least, most=most)
        return [[info] * size for size in self.waves]

    def tell(self, trial: int, metric: float | None) -> None:
        """Record a trial's result, after which another trial may be suggested; its later results are ignored."""
        if self._learner is None or trial not in self._open:
            return
        self._open.remove(trial)
        self._learner.tell(trial, metric if metric is not None and math.isfinite(metric) else None)
        self._fill()

    def _fill(self) -> None:
        while (
            self._learner is not None
            and len(self._made) < self._search.trials
            and len(self._open) < self._search.max_concurrent_trials
        ):
            number = len(self._made) + 1
            self._add(number, self._learner.ask(number))
            self._open.add(number)

    def _add(self, number: int, parameters: Parameters) -> None:
        self._made.append(Trial(number=number, parameters=parameters, seed=trial_seed(self._search.seed, number)))

    def state(self) -> JsonState:
        """Return suggestions and results in order; empty: all trials were suggested at the start."""
        return {} if self._learner is None else {"history": self._learner.history()}

    def restore(self, state: JsonState) -> None:
        """Continue from ``state``, which may come from the same search with fewer trials."""
        if self._learner is None:
            return
        self._made, self._open = [], set()
        for event in self._learner.replay(list(state["history"])):
            if event["told"]:
                self._open.discard(event["trial"])
            else:
                self._add(event["trial"], event["parameters"])
                self._open.add(event["trial"])
        self._fill()
