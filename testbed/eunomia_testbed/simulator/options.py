"""Options of a simulation: costs of changes, failures, reports of app masters, and the logs to keep."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Final, Literal

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.simulator.machine_changes import MachineChange
from eunomia_testbed.simulator.rules import Rules


@value
class Costs:
    """Costs of changes, in seconds."""

    start: float = 0.0
    """Seconds from the order to a job's first step (processes, libraries, data); the job holds its GPUs meanwhile."""
    checkpoint: float = 0.0
    """Seconds to save before a job leaves its GPUs; the job holds them meanwhile and makes no step."""
    restore: float = 0.0
    """Seconds to read the checkpoint, in addition to ``start``, at every start except a job's first."""
    migrate: float = 0.0
    """Seconds in addition to ``checkpoint``, ``start`` and ``restore`` if a job moves to other GPUs."""
    join: float = 0.0
    """Seconds for which a growing job runs at its old size, until the new workers are ready."""
    pause: float = 0.0
    """Seconds without a step in which the gang of a growing or shrinking job is reassembled."""
    release: float = 0.0
    """Seconds from the end of a job's processes until other jobs can use its GPUs."""
    checkpoint_every: float = math.inf
    """Seconds of steps after which a running job pauses for ``checkpoint`` seconds to save; a machine failure loses the
    work since then, regardless of ``Failures``. inf: such checkpoints take no time."""


Resizes = Literal["pause", "live", "restart"]
"""How a job changes its size. ``pause``: a growing job runs on for ``join`` then pauses for ``pause``; a shrinking
one saves, then pauses for ``pause``. ``live``: a job that keeps its least gang never saves, and releases GPUs
after ``pause``. ``restart``: each change saves, and costs ``start`` and ``restore``."""


@value
class Delays:
    """Delays and losses of a remote executor: orders may overtake each other, and acknowledgements may get lost."""

    order: float = 0.0
    """Longest delay of an order in seconds; each order takes a random fraction of it, from half to all."""
    jitter: float = 0.0
    """Each cost is reduced by a random fraction, up to this one."""
    lost: float = 0.0
    """Fraction of the acknowledgements that are lost, and sent again."""
    again: float = 1.0
    """Seconds after which a lost acknowledgement is sent again."""

    @property
    def any(self) -> bool:
        """Return whether any order, cost or acknowledgement is delayed, varied or lost."""
        return self.order > 0.0 or self.jitter > 0.0 or self.lost > 0.0


@value
class Outage:
    """The beginning (``up`` false) or the end (``up`` true) of a machine's outage."""

    time_seconds: float
    machine: str
    up: bool = False


@value
class WorkerFault:
    """A fault that kills or stops one worker of a job that makes steps at that time."""

    time_seconds: float
    draw: float
    """Number in [0, 1) that selects one of these jobs, in order of job id."""
    stands_seconds: float
    """Seconds for which a stopped worker pauses, or from a kill to the job's restart."""
    kills: bool = True
    """Whether the job loses the work since its last checkpoint and restarts; otherwise it only pauses."""


@value
class Failures:
    """Machines that fail and are repaired, at intervals drawn from exponential distributions by the seed."""

    between_seconds: float = math.inf
    """Mean seconds between two failures of a machine."""
    repair_seconds: float = 3600.0
    """Mean seconds to repair a machine."""
    outages: tuple[Outage, ...] = ()
    """Outages at given times, such as from a file."""
    worker_faults: tuple[WorkerFault, ...] = ()
    """Single workers that are killed or stopped, in order of time."""
    most_worker_faults: int = 3
    """Largest number of worker faults of one job."""
    checkpoint_every_seconds: float = 1800.0
    """Seconds between a job's checkpoints; a machine failure loses its work since the last one. inf: it saves only on
    leaving its GPUs. These checkpoints take no time; ``Costs.checkpoint_every`` replaces them by ones that do."""


Knowledge = Literal["declared", "measured", "oracle"]
Fact = Literal["work", "sizes", "types", "regimes", "amounts"]
FACTS: Final[tuple[Fact, ...]] = ("work", "sizes", "types", "regimes", "amounts")
"""Facts that app masters may know from the beginning, in addition to their measurements."""
ERRORS: Final = ("work", "rates", "types", "sizes", "slowdowns")
"""Quantities that may have errors: all work or all rates of an app, or its rates by GPU type, size or distance."""
_OF_ORACLE: Final[frozenset[Fact]] = frozenset({"work", "sizes", "types"})
_CONTRADICTED: Final[Mapping[str, frozenset[Fact]]] = {
    "work": frozenset({"work"}),
    "rates": frozenset({"sizes", "types", "regimes"}),
    "types": frozenset({"types"}),
    "sizes": frozenset({"sizes"}),
    "slowdowns": frozenset({"sizes"}),
}
"""The facts that each kind of error contradicts."""


@value
class Reports:
    """The reports of app masters on their jobs, which may differ from the true values."""

    know: Knowledge | tuple[Fact, ...] = "declared"
    """What app masters know. ``declared``: work and serial time from the workload; ``measured``: also rates measured
    while a job ran; ``oracle``: all true rates from the beginning; facts: measured rates, and these facts from the
    beginning. ``work``: the true work; ``sizes``: the rates at every size and locality on the job's own GPU type,
    and the slowdown by distance; ``types``: the rates at the job's largest size on every GPU type; ``regimes``: the
    future regimes of a job that adapts, each with its work and rate; ``amounts``: the rates of each job kind by CPUs
    and memory, if the speeds have them. ``oracle`` includes neither of the last two."""
    error: float = 0.0
    """Relative error: each app's work and rates are multiplied by factors drawn from 1 - error to 1 + error."""
    errors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Relative errors by quantity, one of ``ERRORS``; ``error`` applies to work and rates that are not given here."""
    lies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Factor on the reported work of an app, by app id."""
    type_lies: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    """Factor on the reported rates of an app, by app id and GPU type."""
    far_lies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Factor on the reported slowdown of an app's jobs across machines, by app id (Themis §6.3)."""
    profiles: bool = True
    """Whether rates that are known without a run are reported by job; otherwise only forecasts have slowdowns."""
    forecast_seconds: float = 0.0
    """Least seconds between two forecasts of an app master, apart from those that its bids need; 0: one with every
    step."""

    @property
    def facts(self) -> frozenset[Fact]:
        """Return the facts that are known from the beginning."""
        if isinstance(self.know, str):
            return _OF_ORACLE if self.know == "oracle" else frozenset()
        return frozenset(self.know)

    @property
    def measures(self) -> bool:
        """Return whether a rate is reported when a job first runs in a setting, because not all rates are known.

        Rates by CPUs and memory apply to the kind; a rate measured on a single job would replace them.
        """
        return self.know != "declared" and not ({"sizes", "types"} <= self.facts or "amounts" in self.facts)

    def error_of(self, what: str) -> float:
        """Return the relative error on one of ``ERRORS``."""
        return self.errors.get(what, self.error if what in ("work", "rates") else 0.0)

    def check(self) -> None:
        """Check that names are known, that errors are in [0, 1), and that no error contradicts a known fact.

        Raises:
            InputError: one of these checks fails.
        """
        for fact in () if isinstance(self.know, str) else self.know:
            if fact not in FACTS:
                raise InputError(f"know must be of {', '.join(FACTS)}", value=f'"{fact}"')
        for name, part in (("error", self.error), *self.errors.items()):
            if name != "error" and name not in ERRORS:
                raise InputError(f"error must be on one of {', '.join(ERRORS)}", value=f'"{name}"')
            if not 0.0 <= part < 1.0:
                rule = "error" if name == "error" else f"error of {name}"
                raise InputError(f"{rule} must be at least 0 and less than 1", value=str(part))
        of_types = ((f"{app}.{kind}", one) for app, by in self.type_lies.items() for kind, one in by.items())
        for app, factor in (*self.lies.items(), *self.far_lies.items(), *of_types):
            if not 0.0 < factor < math.inf:
                raise InputError("a lie must be a positive factor", value=str(factor), place=app)
        self._check_contradictions()

    def _check_contradictions(self) -> None:
        """Check that facts known from the beginning have no errors or misreports; ``oracle`` may have errors."""
        off = {name for name in ERRORS if self.error_of(name) > 0.0}
        if self.know == "declared" and off & {"types", "sizes", "slowdowns"}:
            name = min(off & {"types", "sizes", "slowdowns"})
            raise InputError(f"error of {name} must stand with rates that are known", value='know "declared"')
        if self.know == "declared" and self.type_lies:
            raise InputError("a lie on a GPU type must stand with rates that are known", value='know "declared"')
        if isinstance(self.know, str):
            return
        for name in sorted(off):
            fact = _CONTRADICTED[name] & self.facts
            if fact:
                raise InputError("error must not be on what is known", value=f"{name}, with known {min(fact)}")
        if self.lies and "work" in self.know:
            raise InputError("a lie must not be on what is known", value=f"work of {min(self.lies)}")
        if self.type_lies and "types" in self.know:
            raise InputError("a lie must not be on what is known", value=f"types of {min(self.type_lies)}")


@value
class Keep:
    """The logs to keep; totals per job are always kept."""

    rounds: bool = True
    leases: bool = True
    waits: bool = True
    segments: bool = False
    """The periods of constant speed of each job."""
    queue: bool = True
    records: bool = True
    """The records of plugins."""
    timings: bool = True
    """The CPU time of each stage."""


@value
class Progress:
    """The progress of a run, in jobs and simulated time."""

    finished: int
    jobs: int
    time_seconds: float


@value
class SimulationOptions:
    """How a workload is simulated: costs, delays, failures, reports, and the logs to keep."""

    costs: Costs = Costs()
    resizes: Resizes = "pause"
    """How jobs change their size, and so which costs a change has."""
    delays: Delays = Delays()
    failures: Failures | None = None
    machines: tuple[MachineChange, ...] = ()
    """Machines that join, drain and leave, in order of time."""
    reports: Reports = Reports()
    rules: Rules | None = None
    """A peer's round rules; None: the profile's."""
    agents: bool = False
    """Whether app masters answer offers themselves; otherwise the arbiter values offers from the apps' reports."""
    answer_seconds: float = 0.0
    """Seconds that an app master takes to answer an offer."""
    keep: Keep = Keep()
    until: float = math.inf
    """Simulated seconds after which the run is cut off."""
    plain: bool = False
    """Whether every stage uses its simple reference code, which is slower and gives the same tables."""
    tolerate_faults: bool = False
    """Whether a run continues after a plugin's fault: the round changes nothing, and after several faults in a row the
    fallback decides."""

    @property
    def unpaid_checkpoints_seconds(self) -> float:
        """Return the seconds between checkpoints that take no time; inf: there are no such checkpoints."""
        if self.failures is None and not self.machines:
            return math.inf
        return (self.failures or Failures()).checkpoint_every_seconds

    def check(self) -> None:
        """Check that the options are valid.

        Raises:
            InputError: a time is negative, a fraction is not in [0, 1), or the options contradict each other.
        """
        for field in dataclasses.fields(self.costs):
            if field.name != "checkpoint_every":
                _at_least_zero(field.name, getattr(self.costs, field.name))
        if not self.costs.checkpoint_every > 0.0:
            raise InputError("checkpoint_every must be positive", value=str(self.costs.checkpoint_every))
        for name, seconds in (("order", self.delays.order), ("again", self.delays.again)):
            _at_least_zero(name, seconds)
        for name, part in (("jitter", self.delays.jitter), ("lost", self.delays.lost)):
            if not 0.0 <= part < 1.0:
                raise InputError(f"{name} must be at least 0 and less than 1", value=str(part))
        _at_least_zero("answer_seconds", self.answer_seconds)
        self.reports.check()
        if self.failures is not None:
            self._check_failures(self.failures)

    def _check_failures(self, failures: Failures) -> None:
        for name in ("between_seconds", "repair_seconds", "checkpoint_every_seconds"):
            if not getattr(failures, name) > 0.0:
                raise InputError(f"{name} must be positive", value=str(getattr(failures, name)))
        free, paid = failures.checkpoint_every_seconds, self.costs.checkpoint_every
        if paid < math.inf and free not in (paid, Failures().checkpoint_every_seconds):
            rule = "checkpoint_every must be the same among costs and failures, or stand among one of them"
            raise InputError(rule, value=f"{paid:g} s and {free:g} s")


def _at_least_zero(name: str, seconds: float) -> None:
    if not 0.0 <= seconds < math.inf:
        raise InputError(f"{name} must be at least 0 seconds", value=str(seconds))
