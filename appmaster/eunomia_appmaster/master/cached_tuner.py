"""A cache of a tuner's answers: since a tuner has no clock, only reports to the tuner can change its answers."""

from collections.abc import Mapping, Sequence

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Action, JsonState, Trial, TrialRun, Tuner


class CachedTuner:
    """Caches the answers of an app's tuner until a report may have changed them.

    A metric counts as a report only if the tuner uses metrics between pauses (``listens``), or acts on this one.

    Args:
        tuner: the tuner whose answers are cached.
    """

    def __init__(self, tuner: Tuner) -> None:
        self.inner = tuner
        self.reports = 0
        """Number of reports so far that may have changed the answers."""
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
        """As ``Tuner.needs_metric``."""
        return self.inner.needs_metric

    # -- reports

    def poll(self) -> Sequence[InputError]:
        """Poll a tuner that has a ``poll`` method for changes from an external source; returns errors for users."""
        poll = getattr(self.inner, "poll", None)
        if poll is None:
            return ()
        changed, errors = poll()
        if changed or errors:
            self._changed()
        return tuple(errors)

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """As ``Tuner.on_result``; drops the cached answers if the metric may change them."""
        action = self.inner.on_result(trial, iteration, metric)
        self._state = None
        if self._listens or action is not Action.CONTINUE:
            self._changed()
        return action

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """As ``Tuner.on_paused``; drops the cached answers."""
        self.inner.on_paused(trial, iteration, metric)
        self._changed()

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """As ``Tuner.on_finished``; drops the cached answers."""
        self.inner.on_finished(trial, iteration, metric)
        self._changed()

    def on_failed(self, trial: int) -> None:
        """As ``Tuner.on_failed``; drops the cached answers."""
        self.inner.on_failed(trial)
        self._changed()

    def restore(self, state: JsonState) -> None:
        """As ``Tuner.restore``; drops the cached answers."""
        self.inner.restore(state)
        self._changed()

    def _changed(self) -> None:
        self.reports += 1
        self._state = None
        self._runs = self._ranks = self._ended = self._done = self._smallest = self._trials = None

    # -- answers

    def trials(self) -> Sequence[Trial]:
        """As ``Tuner.trials``, cached."""
        if self._trials is None:
            self._trials = self.inner.trials()
        return self._trials

    def runs(self) -> Mapping[int, TrialRun]:
        """Return the trials to run now by number, in order of priority."""
        if self._runs is None:
            self._runs = {run.trial: run for run in self.inner.runs()}
        return self._runs

    def rank(self, trial: int) -> int:
        """Return a runnable trial's position in the order of priority, from 0."""
        if self._ranks is None:
            self._ranks = {number: place for place, number in enumerate(self.runs())}
        return self._ranks[trial]

    @property
    def smallest(self) -> int:
        """The smallest gang, in slots, of all trials to run now; 1: there are none."""
        if self._smallest is None:
            self._smallest = min((run.least for run in self.runs().values()), default=1)
        return self._smallest

    def ended(self) -> frozenset[int]:
        """Return the trials that have ended."""
        if self._ended is None:
            self._ended = frozenset(self.inner.ended())
        return self._ended

    def is_done(self) -> bool:
        """As ``Tuner.is_done``, cached."""
        if self._done is None:
            self._done = self.inner.is_done()
        return self._done

    def rung(self, trial: int) -> int | None:
        """As ``Tuner.rung``, not cached."""
        return self.inner.rung(trial)

    def best(self) -> int | None:
        """As ``Tuner.best``, not cached."""
        return self.inner.best()

    def state(self) -> JsonState:
        """As ``Tuner.state``, cached; the caller must not change it."""
        if self._state is None:
            self._state = self.inner.state()
        return self._state
