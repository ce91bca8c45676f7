"""The tables of an app file as pydantic models: the allowed values of each key, and the rule for errors."""

import itertools
import math
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from eunomia.errors import InputError
from eunomia.model.adaptations import MODES
from eunomia.units import parse_duration
from eunomia_appmaster.app.space import SAMPLERS, Categorical, Distribution, Float, Int, Sampler
from eunomia_appmaster.node.local_machine import MOST_SLOTS
from eunomia_appmaster.node.stall_watch import DEFAULT_STEPS, LEAST_AFTER_SECONDS, LEAST_STEPS, StallLimits

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Allowed names of apps and users: a name becomes a folder's name and part of job ids."""
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWN_VARIABLES = re.compile(
    r"EUNOMIA_.*|RANK|LOCAL_RANK|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|CUDA_VISIBLE_DEVICES"
)
"""Environment variables that the launcher sets for a worker, and that an app file may not set."""
MOST_TRIALS = 10_000
MOST_ITERATIONS = 10**12
MOST_NUMBER = 1e300
"""Largest accepted magnitude of a number; the difference of two accepted numbers is still finite."""
MOST_STEPS = 2**53


# -- checks of single values: each raises ValueError(rule), and the reader adds value and place


def _name(what: str) -> BeforeValidator:
    def check(given: object) -> object:
        if not isinstance(given, str) or not NAME.fullmatch(given):
            raise ValueError(
                f"{what} must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with a letter or digit"
            )
        return given

    return BeforeValidator(check)


def _whole(what: str, least: int, most: int) -> BeforeValidator:
    def check(given: object) -> object:
        if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
            raise ValueError(f"{what} must be a whole number from {least} to {most}")
        return given

    return BeforeValidator(check)


def _truth(what: str) -> BeforeValidator:
    def check(given: object) -> object:
        if not isinstance(given, bool):
            raise ValueError(f"{what} must be true or false")
        return given

    return BeforeValidator(check)


def _number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ValueError("low, high and step must be finite numbers")
    if isinstance(given, float) and not math.isfinite(given):
        raise ValueError("low, high and step must be finite numbers")
    if abs(given) > MOST_NUMBER:
        raise ValueError(f"low, high and step must be at most {MOST_NUMBER:g}")
    return float(given)


def _weight(given: object) -> object:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1e6:
        raise ValueError("weight must be a number above 0, at most 1000000")
    return float(given)


def _seconds(given: object) -> float:
    try:
        return float(parse_duration(given, name="checkpoint_every"))
    except InputError as error:
        raise ValueError(error.rule) from error


def _stall_after(given: object) -> float:
    if given == "off":
        return 0.0
    try:
        seconds = float(parse_duration(given, name="stall_after"))
    except InputError as error:
        raise ValueError(f'{error.rule}, or "off"') from error
    if seconds < LEAST_AFTER_SECONDS:
        raise ValueError(f'stall_after must be at least "{LEAST_AFTER_SECONDS:g}s", or "off"')
    return seconds


def _stall_steps(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not LEAST_STEPS <= given <= 1e6:
        raise ValueError(f"stall_steps must be a number from {LEAST_STEPS:g} to 1000000")
    return float(given)


def _text(what: str) -> BeforeValidator:
    def check(given: object) -> object:
        if not isinstance(given, str) or not given.strip() or not given.isprintable() or len(given) > 4096:
            raise ValueError(f"{what} must be a line of text")
        return given

    return BeforeValidator(check)


def _choice(what: str, choices: tuple[str, ...]) -> BeforeValidator:
    def check(given: object) -> object:
        if given not in choices:
            raise ValueError(f"{what} must be " + " or ".join(f'"{choice}"' for choice in choices))
        return given

    return BeforeValidator(check)


def _milestones(given: object) -> object:
    rule = "milestones must be iterations in ascending order"
    if not isinstance(given, list) or any(isinstance(step, bool) or not isinstance(step, int) for step in given):
        raise ValueError(rule)
    if any(step < 1 for step in given) or any(late <= early for early, late in itertools.pairwise(given)):
        raise ValueError(rule)
    if given and given[-1] > MOST_ITERATIONS:
        raise ValueError(f"milestones must be at most {MOST_ITERATIONS}")
    return tuple(given)


def _env(given: object) -> object:
    if not isinstance(given, dict):
        raise ValueError('env must be a table of variables, such as { OMP_NUM_THREADS = "1" }')
    rules = [rule for variable, setting in given.items() if (rule := _env_rule(variable, setting))]
    if rules:
        raise ValueError("; ".join(rules))
    return given


def _env_rule(variable: str, setting: object) -> str:
    """Return why an environment variable is not allowed; empty: it is allowed."""
    if not VARIABLE.fullmatch(variable):
        return f'env must name variables of letters, digits and underscores, not "{variable}"'
    if OWN_VARIABLES.fullmatch(variable):
        return f"env must not have {variable}, which the launcher sets"
    if not isinstance(setting, str) or "\0" in setting:
        return f"env must give {variable} a text in quotes"
    return ""


# -- the tables of the file


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AppTable(_Table):
    """The table ``[app]`` of an app file."""

    name: Annotated[str, _name("name")]
    """Name of the app; the service makes it unique."""
    user: Annotated[str, _name("user")] | None = None
    """User that owns the app; None: the submitting user."""
    weight: Annotated[float, BeforeValidator(_weight)] = 1.0
    """Weight of the app, for policies that use weights."""


class Slots(_Table):
    """The key ``slots``: the smallest and the largest number of slots of a job."""

    min: Annotated[int, _whole("slots", 1, MOST_SLOTS)]
    max: Annotated[int, _whole("slots", 1, MOST_SLOTS)]
    across_nodes: Annotated[bool, _truth("across_nodes")] = False
    """Whether a job may use slots of several nodes to grow beyond its smallest size."""


def _slots(given: object) -> object:
    rule = f"slots must be a whole number from 1 to {MOST_SLOTS}, or {{ min = 1, max = 4 }}"
    if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= MOST_SLOTS:
        return {"min": given, "max": given}
    if not isinstance(given, dict) or not {"min", "max"} <= set(given):
        raise ValueError(rule)
    return given


def _ordered(given: Slots) -> Slots:
    if given.min > given.max:
        raise ValueError("slots must have a min that is at most its max")
    return given


class JobTable(_Table):
    """The table ``[job]``: what each trial runs."""

    command: Annotated[str, _text("command")]
    slots: Annotated[Slots, BeforeValidator(_slots), AfterValidator(_ordered)] = Slots(min=1, max=1)
    max_iterations: Annotated[int, _whole("max_iterations", 1, MOST_ITERATIONS)] | None = None
    """A job's whole work in optimizer steps; None: until the script ends."""
    checkpoint_every: Annotated[float, BeforeValidator(_seconds)] | None = None
    """Seconds between periodic checkpoints; None: a job writes a checkpoint only when it is ordered to suspend."""
    retries: Annotated[int, _whole("retries", 0, 100)] = 2
    """Number of times that a failed job is started again."""
    stall_after: Annotated[float, BeforeValidator(_stall_after)] | None = None
    """Seconds without progress after which a job is ended as stalled; 0: never; None: after ``stall_steps`` steps."""
    stall_steps: Annotated[float, BeforeValidator(_stall_steps)] = DEFAULT_STEPS
    """Number of step times without progress, and at least a minute, after which a job is ended as stalled."""
    trust_checkpoints: Annotated[bool, _truth("trust_checkpoints")] = False
    """Whether checkpoints may hold objects of any class, whose unpickling can run code."""
    elastic: Annotated[Literal["restart", "live"], _choice("elastic", ("restart", "live"))] = "restart"
    """How a running job changes its size: by a restart from a checkpoint, or live, without one."""
    kind: Annotated[str, _name("kind")] | None = None
    """Kind of the jobs; jobs of one kind, in any app, share their measured rates. None: a kind of the app's own."""
    epochs: Annotated[int, _whole("epochs", 1, MOST_ITERATIONS)] | None = None
    """Passes over the data set that a job makes; None: not declared."""
    samples_per_epoch: Annotated[int, _whole("samples_per_epoch", 1, MOST_ITERATIONS)] | None = None
    """Samples in one pass; None: not declared."""
    batch_size: Annotated[int, _whole("batch_size", 1, MOST_ITERATIONS)] | None = None
    """Global batch size at the start; None: not declared."""
    adapts: Annotated[str, _choice("adapts", MODES)] | None = None
    """How a job changes its batch size: ``static``, ``accordion``, ``gns`` or ``other``; None: not declared."""
    milestones: Annotated[tuple[int, ...], BeforeValidator(_milestones)] = ()
    """Iterations at which the learning rate drops."""
    env: Annotated[dict[str, str], BeforeValidator(_env)] = Field(default_factory=dict)

    @property
    def stall_limits(self) -> StallLimits:
        """The limits of time without progress after which a job is ended as stalled."""
        return StallLimits(steps=self.stall_steps, after=self.stall_after or None, off=self.stall_after == 0.0)


class FloatTable(_Table):
    """The table of a parameter with ``type = "float"``."""

    type: Literal["float"]
    low: Annotated[float, BeforeValidator(_number)]
    high: Annotated[float, BeforeValidator(_number)]
    log: bool = False
    step: Annotated[float, BeforeValidator(_number)] | None = None

    def distribution(self) -> Distribution:
        """Return the distribution.

        Raises:
            ValueError: the bounds, ``step`` and ``log`` contradict each other.
        """
        _check_range(self.low, self.high, self.log, self.step)
        return Float(low=self.low, high=self.high, log=self.log, step=self.step)


class IntTable(_Table):
    """The table of a parameter with ``type = "int"``."""

    type: Literal["int"]
    low: Annotated[int, _whole("low", -(2**53), 2**53)]
    high: Annotated[int, _whole("high", -(2**53), 2**53)]
    log: bool = False
    step: Annotated[int, _whole("step", 1, 2**53)] = 1

    def distribution(self) -> Distribution:
        """Return the distribution; see ``FloatTable``."""
        _check_range(self.low, self.high, self.log, None if self.step == 1 else self.step)
        return Int(low=self.low, high=self.high, log=self.log, step=self.step)


class CategoricalTable(_Table):
    """The table of a parameter with ``type = "categorical"``."""

    type: Literal["categorical"]
    choices: list[bool | int | float | str]

    def distribution(self) -> Distribution:
        """Return the distribution.

        Raises:
            ValueError: there are no choices, or a choice cannot be written on a command line.
        """
        if not self.choices:
            raise ValueError("choices must name at least one value")
        if any(isinstance(choice, float) and not math.isfinite(choice) for choice in self.choices):
            raise ValueError("choices must be finite")
        if any(isinstance(choice, str) and "\0" in choice for choice in self.choices):
            raise ValueError("choices must be printable")
        return Categorical(choices=tuple(self.choices))


def _check_range(low: float, high: float, log: bool, step: float | None) -> None:
    if low > high:
        raise ValueError("low must be at most high")
    if log and low <= 0:
        raise ValueError("low must be above 0 where log is true")
    if log and step is not None:
        raise ValueError("log and step must not be given together")
    if step is not None and step <= 0:
        raise ValueError("step must be above 0")
    if step is not None and (high - low) / step > MOST_STEPS:
        raise ValueError(f"step must leave at most {MOST_STEPS} values")


DISTRIBUTIONS: Mapping[str, type[FloatTable | IntTable | CategoricalTable]] = {
    "float": FloatTable,
    "int": IntTable,
    "categorical": CategoricalTable,
}


class TunerTable(_Table):
    """The table ``[tuner]``: the keys that all tuners share; other keys are options of the chosen tuner."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: Annotated[str, _text("kind")] = "none"
    metric: Annotated[str, _text("metric")] | None = None
    """TensorBoard tag of the metric that the search optimises."""
    mode: Annotated[Literal["min", "max"], _choice("mode", ("min", "max"))] = "max"
    trials: Annotated[int, _whole("trials", 1, MOST_TRIALS)] | None = None
    sampler: Annotated[Sampler, _choice("sampler", SAMPLERS)] = "random"
    """Sampler of the search: ``random``, ``grid``, or one of Optuna's."""
    max_concurrent_trials: Annotated[int, _whole("max_concurrent_trials", 1, MOST_TRIALS)] | None = None
    """Most trials that an Optuna sampler suggests before earlier results are known; None: 4."""
    startup_trials: Annotated[int, _whole("startup_trials", 1, MOST_TRIALS)] | None = None
    """Number of trials that an Optuna sampler draws at random before it uses results."""
    seed: Annotated[int, _whole("seed", 0, 2**63 - 1)] = 0
