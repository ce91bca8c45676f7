"""Optuna's samplers, through its ask-and-tell interface, in memory.

After a restart, the study is rebuilt by the same asks and tells in the same order, so that a seeded sampler makes the
same suggestions. Importing this module does not import Optuna; creating a ``Learner`` does.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from eunomia.errors import InputError
from eunomia.extras import remedy
from eunomia_appmaster.app.space import Categorical, Distribution, Float, Int, Parameter
from eunomia_appmaster.tuner import JsonState, Search

log = structlog.get_logger()

CLASSES: Mapping[str, str] = {
    "tpe": "TPESampler",
    "cmaes": "CmaEsSampler",
    "gp": "GPSampler",
    "qmc": "QMCSampler",
}
"""Optuna's sampler classes, by the names in app files."""
PACKAGES: Mapping[str, Sequence[str]] = {"cmaes": ("cmaes",), "gp": ("torch", "scipy"), "qmc": ("scipy",)}
"""Packages that each sampler needs in addition to Optuna."""


class Learner:
    """The Optuna study of one search.

    Raises:
        InputError: Optuna or a package that the sampler needs is not installed, or the search space is empty.
    """

    def __init__(self, search: Search) -> None:
        if not search.space:
            raise InputError(f'[space] must name a parameter for sampler "{search.sampler}"', value="none")
        self._optuna = _import_optuna(search.sampler)
        self._search = search
        self._distributions = {name: self._distribution(kind) for name, kind in search.space.items()}
        self._begin()

    def _begin(self) -> None:
        self._history: list[JsonState] = []
        self._asked: dict[int, Any] = {}
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        with _quiet():
            sampler = _make_sampler(self._optuna, self._search)
            direction = "maximize" if self._search.mode == "max" else "minimize"
            self._study = self._optuna.create_study(direction=direction, sampler=sampler)

    def ask(self, number: int) -> dict[str, Parameter]:
        """Ask the study for the parameters of a trial."""
        with _quiet():
            asked = self._study.ask(self._distributions)
        self._asked[number] = asked
        parameters = {name: _plain(kind, asked.params[name]) for name, kind in self._search.space.items()}
        self._note(number, parameters)
        return parameters

    def _note(self, number: int, parameters: Mapping[str, Parameter]) -> None:
        self._history.append({"told": False, "trial": number, "parameters": dict(parameters)})

    def tell(self, number: int, metric: float | None) -> None:
        """Pass the result of a trial to the study; None: it failed, or its metric is not finite."""
        asked = self._asked.pop(number)
        with _quiet():
            if metric is None:
                self._study.tell(asked, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(asked, metric)
        self._history.append({"told": True, "trial": number, "metric": metric})

    def history(self) -> list[JsonState]:
        """Return all suggestions and results, in order."""
        return [dict(event) for event in self._history]

    def replay(self, history: Sequence[JsonState]) -> Sequence[JsonState]:
        """Rebuild the study from a history, and return the history.

        The history is binding: if Optuna makes a different suggestion now, as another version may, a new study is given
        the former suggestions; only its later suggestions may differ.
        """
        self._begin()
        for event in history:
            if event["told"]:
                self.tell(event["trial"], event["metric"])
            elif self.ask(event["trial"]) != event["parameters"]:
                log.warning("sampler.differs", sampler=self._search.sampler, trial=event["trial"])
                self._take_over(history)
                break
        return history

    def _take_over(self, history: Sequence[JsonState]) -> None:
        """Fill a new study with trials that it did not suggest itself."""
        self._begin()
        for event in history:
            if event["told"]:
                self.tell(event["trial"], event["metric"])
            else:
                self._study.enqueue_trial(event["parameters"])
                with _quiet():
                    self._asked[event["trial"]] = self._study.ask(self._distributions)
                self._note(event["trial"], event["parameters"])

    def _distribution(self, kind: Distribution) -> Any:
        distributions = self._optuna.distributions
        if isinstance(kind, Float):
            with _quiet():  # Optuna warns where steps do not meet the upper bound, and lowers it
                return distributions.FloatDistribution(kind.low, kind.high, log=kind.log, step=kind.step)
        if isinstance(kind, Int):
            return distributions.IntDistribution(kind.low, kind.high, log=kind.log, step=kind.step)
        if isinstance(kind, Categorical):
            return distributions.CategoricalDistribution(kind.choices)
        raise InputError("a distribution must be a float, an int or categorical", value=type(kind).__name__)


def _import_optuna(sampler: str) -> Any:
    try:
        import optuna
    except ImportError as error:
        rule = f'Optuna must be installed for sampler "{sampler}": {remedy("optuna")}'
        raise InputError(rule, value=str(error)) from error
    from importlib.util import find_spec

    for package in PACKAGES.get(sampler, ()):
        if find_spec(package) is None:
            rule = f'the package {package} must be installed for sampler "{sampler}": pip install {package}'
            raise InputError(rule, value="none")
    return optuna


def _make_sampler(optuna: Any, search: Search) -> Any:
    # Optuna seeds with NumPy, which takes 32 bits.
    options: dict[str, Any] = {"seed": search.seed % 2**32}
    if search.sampler == "qmc":
        options["scramble"] = True  # else the seed has no effect
    elif search.startup_trials is not None:
        options["n_startup_trials"] = search.startup_trials
    return getattr(optuna.samplers, CLASSES[search.sampler])(**options)


def _plain(kind: Distribution, given: Any) -> Parameter:
    """Return a suggestion as a plain value; for a stepped float, the exact value of the step."""
    if isinstance(kind, Categorical):
        return next(choice for choice in kind.choices if type(choice) is type(given) and choice == given)
    if isinstance(kind, Int):
        return int(given)
    return float(given) if kind.step is None else kind.at(round((given - kind.low) / kind.step))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Optuna's warnings about experimental features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
