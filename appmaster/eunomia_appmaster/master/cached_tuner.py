"""A tuner whose answers are kept until something is reported to it, since it has no clock of its own."""

from collections.abc import Mapping, Sequence

from eunomia_appmaster.tuner import Action, JsonState, Trial, TrialRun, Tuner


class CachedTuner:
    """Keeps the answers of an app's tuner until a report may have changed them.

    A metric counts as a report only where the tuner listens to metrics between pauses (``listens``), or acts on it.

    Args:
        tuner: which is asked.
    """

    def __init__(self, tuner: Tuner) -> None:
        self.inner = tuner
        self.reports = 0
        """Counts what may have changed the answers."""
        self._state: JsonState | None = None
        self._listens = bool(getattr(tuner, "listens", True))
        self._runs: dict[int, TrialRun] | None = None
        self._ranks: dict[int, int] | None = None
        self._ended: frozenset[int] | None = None
        self._done: bool | None = None
        self._smallest: int | None = None
        self._trials: Sequence[Trial] | None = None

    @property
    def needs_metric(self) -> bool:
        """See ``Tuner``."""
        return self.inner.needs_metric

    # -- reports

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """See ``Tuner``."""
        action = self.inner.on_result(trial, iteration, metric)
        self._state = None
        if self._listens or action is not Action.CONTINUE:
            self._changed()
        return action

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``."""
        self.inner.on_paused(trial, iteration, metric)
        self._changed()

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``."""
        self.inner.on_finished(trial, iteration, metric)
        self._changed()

    def on_failed(self, trial: int) -> None:
        """See ``Tuner``."""
        self.inner.on_failed(trial)
        self._changed()

    def restore(self, state: JsonState) -> None:
        """See ``Tuner``."""
        self.inner.restore(state)
        self._changed()

    def _changed(self) -> None:
        self.reports += 1
        self._state = None
        self._runs = self._ranks = self._ended = self._done = self._smallest = self._trials = None

    # -- answers

    def trials(self) -> Sequence[Trial]:
        """See ``Tuner``."""
        if self._trials is None:
            self._trials = self.inner.trials()
        return self._trials

    def runs(self) -> Mapping[int, TrialRun]:
        """Return the trials to run now by number, in order of priority."""
        if self._runs is None:
            self._runs = {run.trial: run for run in self.inner.runs()}
        return self._runs

    def rank(self, trial: int) -> int:
        """Return the place of a trial that is to run now in the order of priority, from 0."""
        if self._ranks is None:
            self._ranks = {number: place for place, number in enumerate(self.runs())}
        return self._ranks[trial]

    @property
    def smallest(self) -> int:
        """The smallest gang of a trial that is to run now; 1: there is none."""
        if self._smallest is None:
            self._smallest = min((run.least for run in self.runs().values()), default=1)
        return self._smallest

    def ended(self) -> frozenset[int]:
        """Return the trials that are over."""
        if self._ended is None:
            self._ended = frozenset(self.inner.ended())
        return self._ended

    def is_done(self) -> bool:
        """See ``Tuner``."""
        if self._done is None:
            self._done = self.inner.is_done()
        return self._done

    def rung(self, trial: int) -> int | None:
        """See ``Tuner``."""
        return self.inner.rung(trial)

    def best(self) -> int | None:
        """See ``Tuner``."""
        return self.inner.best()

    def state(self) -> JsonState:
        """See ``Tuner``; not to be changed."""
        if self._state is None:
            self._state = self.inner.state()
        return self._state
