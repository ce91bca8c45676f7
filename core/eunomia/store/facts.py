"""State outside the tables: names and their numbers, reports that only some jobs and apps have, and counters."""

import dataclasses
from typing import Any

from eunomia.contract.snapshot import Measured, Reported
from eunomia.model.adaptations import Adaptations, ComingRegime
from eunomia.model.forecasts import Forecast
from eunomia.model.kind_profiles import KnownRate
from eunomia.units import NEVER, ZERO, AppId, Cause, Epoch, JobId, Seconds, UserId, Version

_NO_VERSION = Version(0)


@dataclasses.dataclass(slots=True)
class Names:
    """Row numbers by id, and the numbers that columns store in place of names."""

    users: dict[UserId, int] = dataclasses.field(default_factory=dict)
    """Row of each user, by id; ``apps`` and ``jobs`` likewise."""
    apps: dict[AppId, int] = dataclasses.field(default_factory=dict)
    jobs: dict[JobId, int] = dataclasses.field(default_factory=dict)
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)
    """Number of each kind of job, by name."""
    tuner_kinds: dict[str, int] = dataclasses.field(default_factory=lambda: {"none": 0})
    plugins: dict[str, int] = dataclasses.field(default_factory=lambda: {"": 0})
    """Number of each plugin that gave a verdict, by name; 0 stands for the core."""
    outcomes: dict[AppId, str] = dataclasses.field(default_factory=dict)
    """The outcome of each ended app: finished, failed or cancelled."""


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class KeptReports(Reported):
    """Reports that only some jobs, apps, users or kinds have; stages see those that ``Reported`` declares."""

    forecasts: dict[int, Forecast] = dataclasses.field(default_factory=dict)
    measured: dict[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    measured_at_others: dict[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    coming_regimes: dict[int, tuple[ComingRegime, ...]] = dataclasses.field(default_factory=dict)
    profiles: dict[int, tuple[KnownRate, ...]] = dataclasses.field(default_factory=dict)
    adaptations: dict[int, Adaptations] = dataclasses.field(default_factory=dict)
    starts_at: dict[int, float] = dataclasses.field(default_factory=dict)
    """Planned start of each job, in seconds since the arbiter's start, by job row."""
    held: dict[UserId, float] = dataclasses.field(default_factory=dict)
    """Time in seconds until which a user's jobs may not run, by user."""
    wishes: dict[int, tuple[str | None, int]] = dataclasses.field(default_factory=dict)
    """Requested GPU type and largest size of the jobs whose requests exceeded the cluster, by job row."""
    by_job: tuple[dict[int, Any], ...] = dataclasses.field(init=False, repr=False)
    """The dictionaries by job row, from which a job's entry is removed when the job ends."""

    def __post_init__(self) -> None:
        rates = self.measured, self.measured_at_others
        self.by_job = *rates, self.adaptations, self.coming_regimes, self.starts_at, self.wishes


@dataclasses.dataclass(slots=True)
class Counters:
    """Counters of the arbiter, and the causes of the next round."""

    seed: int
    """Seed of all random choices."""
    round: int = 0
    version: Version = _NO_VERSION
    """Version of the state; each step increases it by one."""
    last_epoch: int = 0
    last_lease: int = 0
    last_offer: int = 0
    arrivals: int = 0
    """Number of jobs that have arrived so far."""
    draws: int = 0
    """Number of random generators that stages have requested."""
    contention_area: float = 0.0
    """Integral of the number of apps over time, in app-seconds."""
    causes: frozenset[Cause] = frozenset()
    cause_since: Seconds = NEVER
    """Time at which the first of ``causes`` occurred, in seconds."""
    stage_wake_at: Seconds = NEVER
    """Time of the round that a stage requested, in seconds."""
    last_boundary: Seconds = ZERO
    """Time of the last periodic round, in seconds."""
    faults_in_row: int = 0
    fallen_back: bool = False

    def next_epoch(self) -> Epoch:
        """Advance the epoch counter and return the new epoch."""
        self.last_epoch += 1
        return Epoch(self.last_epoch)

    def count_draw(self) -> None:
        """Increase the count of random generators that stages have requested."""
        self.draws += 1
