"""Facts that are in no table: names and their numbers, reports of some jobs and apps only, and counters."""

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
    """Rows by id, and numbers of the names that columns hold as numbers."""

    users: dict[UserId, int] = dataclasses.field(default_factory=dict)
    """Rows; of apps and jobs likewise."""
    apps: dict[AppId, int] = dataclasses.field(default_factory=dict)
    jobs: dict[JobId, int] = dataclasses.field(default_factory=dict)
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)
    """Numbers of kinds of job."""
    tuner_kinds: dict[str, int] = dataclasses.field(default_factory=lambda: {"none": 0})
    plugins: dict[str, int] = dataclasses.field(default_factory=lambda: {"": 0})
    """Numbers of plugins that gave a verdict; 0: the core did."""
    outcomes: dict[AppId, str] = dataclasses.field(default_factory=dict)
    """How apps ended: finished, failed, cancelled."""


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class KeptReports(Reported):
    """Reports that have no column, since only some jobs or apps have them: those that stages see, and others."""

    forecasts: dict[int, Forecast] = dataclasses.field(default_factory=dict)
    measured: dict[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    measured_at_others: dict[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    coming_regimes: dict[int, tuple[ComingRegime, ...]] = dataclasses.field(default_factory=dict)
    profiles: dict[int, tuple[KnownRate, ...]] = dataclasses.field(default_factory=dict)
    adaptations: dict[int, Adaptations] = dataclasses.field(default_factory=dict)
    starts_at: dict[int, float] = dataclasses.field(default_factory=dict)
    """Planned starts, in seconds."""
    held: dict[UserId, float] = dataclasses.field(default_factory=dict)
    """By user: until when its jobs may not run, in seconds."""
    wishes: dict[int, tuple[str | None, int]] = dataclasses.field(default_factory=dict)
    """The GPU type and the most GPUs that a job asked for, where the cluster had less when it arrived."""
    by_job: tuple[dict[int, Any], ...] = dataclasses.field(init=False, repr=False)
    """The dictionaries above that a job's end shortens."""

    def __post_init__(self) -> None:
        rates = self.measured, self.measured_at_others
        self.by_job = *rates, self.adaptations, self.coming_regimes, self.starts_at, self.wishes


@dataclasses.dataclass(slots=True)
class Counters:
    """Numbers that only grow, and the causes of the next round."""

    seed: int
    """Determines all random choices."""
    round: int = 0
    version: Version = _NO_VERSION
    """Number of the last step: each step closes one."""
    last_epoch: int = 0
    last_lease: int = 0
    last_offer: int = 0
    arrivals: int = 0
    """Number of jobs so far."""
    draws: int = 0
    """Number of random generators that stages asked for."""
    contention_area: float = 0.0
    """Integral of the number of apps over time, in app-seconds."""
    causes: frozenset[Cause] = frozenset()
    cause_since: Seconds = NEVER
    """Time of the first of the causes."""
    stage_wake_at: Seconds = NEVER
    """Time of the round that a stage asked for."""
    last_boundary: Seconds = ZERO
    """Time of the last round of a profile that makes rounds at fixed times."""
    faults_in_row: int = 0
    fallen_back: bool = False

    def next_epoch(self) -> Epoch:
        """Advance the epoch counter and return the new epoch."""
        self.last_epoch += 1
        return Epoch(self.last_epoch)

    def count_draw(self) -> None:
        """Count a random generator that a stage asks for."""
        self.draws += 1
