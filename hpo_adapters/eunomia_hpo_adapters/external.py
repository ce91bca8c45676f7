"""A tuner controlled by a file of orders: a driver outside the app decides which trials run.

The driver, such as a search of Syne Tune, appends orders to the file; the app's trials start, pause, resume and stop as
ordered, and the app ends with the order ``end``. The app master manages checkpoints, retries and slots, as usual.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

from eunomia.errors import InputError
from eunomia_appmaster.app.space import trial_seed
from eunomia_appmaster.tuner import Action, JobInfo, JsonState, Search, Trial, TrialRun
from eunomia_hpo_adapters.scoreboard import Scoreboard
from eunomia_hpo_adapters.trial_orders import End, OrderReader, OrdersPosition, Pause, ReadOrder, Resume, Start


def _absolute(given: object) -> object:
    if not isinstance(given, str) or not given.isprintable() or not Path(given).is_absolute():
        raise ValueError("orders must be the absolute path of a file")
    return Path(given)


class ExternalOptions(BaseModel):
    """Options of ``external``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    orders: Annotated[Path, BeforeValidator(_absolute)]
    """The file of orders, which need not exist yet; it must be visible on all nodes that may run the app master."""


class External:
    """A tuner that starts, pauses, resumes and stops trials by the orders in a file."""

    options_type: ClassVar[type] = ExternalOptions
    needs_metric: ClassVar[bool] = False
    needs_max_iterations: ClassVar[bool] = False
    listens: ClassVar[bool] = False
    simulates: ClassVar[bool] = False
    """Whether a simulation can run this tuner; its orders come from outside the app."""

    def __init__(self, search: Search, options: ExternalOptions) -> None:
        self._search = search
        self._reader = OrderReader(options.orders)
        self._scores = Scoreboard(search)
        self._trials: list[Trial] = []
        self._paused: set[int] = set()
        self._over: set[int] = set()
        self._is_done = False

    @classmethod
    def create(cls, search: Search, options: ExternalOptions) -> Self:
        """See ``Tuner``.

        Raises:
            InputError: the app file has a space, a number of trials or a sampler, which the driver determines.
        """
        if search.space:
            raise InputError(
                'an app file with tuner "external" must have no [space], since orders bring the parameters of trials',
                value=", ".join(search.space),
            )
        if search.trials != 1:
            rule = 'trials must not be given for tuner "external", since orders start trials'
            raise InputError(rule, value=str(search.trials))
        if search.sampler != "random":
            rule = 'sampler must not be given for tuner "external", since orders bring the parameters of trials'
            raise InputError(rule, value=f'"{search.sampler}"')
        return cls(search, options)

    # -- the orders

    def poll(self) -> tuple[bool, Sequence[InputError]]:
        """Read and apply new orders; return whether there were any, and the errors of lines that are not valid."""
        if self._is_done:
            return False, ()
        orders, errors = self._reader.read()
        found = list(errors)
        for read in orders:
            try:
                self._follow(read)
            except InputError as error:
                found.append(InputError(error.rule, value=error.value, place=self._reader.place(read.line)))
        return bool(orders), tuple(found)

    def _follow(self, read: ReadOrder) -> None:
        """Apply one order.

        An order for a trial that has ended has no effect, since the driver may not know yet that the trial has ended.

        Raises:
            InputError: the order starts a trial with a number other than the next one, names a trial that was never
                started, or follows ``end``.
        """
        order = read.order
        if self._is_done:
            raise InputError("no order may follow end", value=order.order)
        if isinstance(order, End):
            self._is_done = True
            self._over = {trial.number for trial in self._trials}
            return
        number, known = order.trial, len(self._trials)
        if isinstance(order, Start):
            if number != known + 1:
                raise InputError(f"the next trial to start must be {known + 1}", value=str(number))
            seed = trial_seed(self._search.seed, number)
            self._trials.append(Trial(number=number, parameters=order.parameters, seed=seed))
        elif number > known:
            raise InputError(f"trial must be one of the {known} that were started", value=str(number))
        elif isinstance(order, Pause):
            self._paused.add(number)
        elif isinstance(order, Resume):
            self._paused.discard(number)
        else:
            self._over.add(number)

    # -- the tuner

    def trials(self) -> Sequence[Trial]:
        """See ``Tuner``."""
        return self._trials

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """See ``Tuner``; the driver reads the metrics itself."""
        self._scores.note(trial, metric)
        return Action.CONTINUE

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``; this tuner pauses trials only by orders."""
        self._scores.note(trial, metric)

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``."""
        self._scores.note(trial, metric)
        self._over.add(trial)

    def on_failed(self, trial: int) -> None:
        """See ``Tuner``."""
        self._over.add(trial)

    def runs(self) -> Sequence[TrialRun]:
        """See ``Tuner``: trials that were started and neither paused nor ended, in order of number."""
        search = self._search
        return [
            TrialRun(trial=number, least=search.least, most=search.most)
            for number in self._alive()
            if number not in self._paused
        ]

    def ended(self) -> Sequence[int]:
        """See ``Tuner``."""
        return sorted(self._over)

    def is_done(self) -> bool:
        """See ``Tuner``: only the order ``end`` ends the app."""
        return self._is_done

    def rung(self, trial: int) -> int | None:
        """See ``Tuner``."""
        return None

    def best(self) -> int | None:
        """See ``Tuner``."""
        return self._scores.best()

    def num_phases(self) -> int:
        """See ``Tuner``: 1 while there are trials to run; trials that are not started yet are not known."""
        return 1 if self.runs() else 0

    def jobs_in_phase(self, phase: int, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See ``Tuner``; paused trials are left out."""
        return [info for info in self.jobs_remaining(done) if info.trial not in self._paused]

    def jobs_remaining(self, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See ``Tuner``; iterations are NaN if the app file has no ``max_iterations``."""
        search, whole = self._search, self._search.max_iterations
        return [
            JobInfo(
                trial=number,
                iterations_left=float("nan") if whole is None else max(whole - done.get(number, 0.0), 0.0),
                least=search.least,
                most=search.most,
            )
            for number in self._alive()
        ]

    def state(self) -> JsonState:
        """See ``Tuner``."""
        return {
            "offset": self._reader.position.offset,
            "lines": self._reader.position.lines,
            "parameters": [dict(trial.parameters) for trial in self._trials],
            "paused": sorted(self._paused),
            "over": sorted(self._over),
            "done": self._is_done,
            "scores": self._scores.state(),
        }

    def restore(self, state: JsonState) -> None:
        """See ``Tuner``."""
        self._reader.position = OrdersPosition(offset=state["offset"], lines=state["lines"])
        self._trials = [
            Trial(number=number, parameters=parameters, seed=trial_seed(self._search.seed, number))
            for number, parameters in enumerate(state["parameters"], 1)
        ]
        self._paused, self._over = set(state["paused"]), set(state["over"])
        self._is_done = state["done"]
        self._scores.restore(state["scores"])

    def _alive(self) -> list[int]:
        return [trial.number for trial in self._trials if trial.number not in self._over]
