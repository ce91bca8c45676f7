"""Facts outside the tables: names and their numbers, reports that only some jobs and apps have, and counters."""

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
    """Rows by id, and numbers of names that columns store as numbers."""

    users: dict[UserId, int] = dataclasses.field(default_factory=dict)
    """Rows of users by id; ``apps`` and ``jobs`` likewise."""
    apps: dict[AppId, int] = dataclasses.field(default_factory=dict)
    jobs: dict[JobId, int] = dataclasses.field(default_factory=dict)
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)
    """Numbers of kinds of job, by name."""
    tuner_kinds: dict[str, int] = dataclasses.field(default_factory=lambda: {"none": 0})
    plugins: dict[str, int] = dataclasses.field(default_factory=lambda: {"": 0})
    """Numbers of plugins that gave verdicts, by name; 0 stands for the core."""
    outcomes: dict[AppId, str] = dataclasses.field(default_factory=dict)
    """How each app ended: finished, failed or cancelled."""


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class KeptReports(Reported):
    """Reports without a column, as only some jobs or apps have them: those that stages see, and others."""

    forecasts: dict[int, Forecast] = dataclasses.field(default_factory=dict)
    measured: dict[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    measured_at_others: dict[int, tuple[Measured, ...]] = dataclasses.field(default_factory=dict)
    coming_regimes: dict[int, tuple[ComingRegime, ...]] = dataclasses.field(default_factory=dict)
    profiles: dict[int, tuple[KnownRate, ...]] = dataclasses.field(default_factory=dict)
    adaptations: dict[int, Adaptations] = dataclasses.field(default_factory=dict)
    starts_at: dict[int, float] = dataclasses.field(default_factory=dict)
    """Planned starts in seconds, by job row."""
    held: dict[UserId, float] = dataclasses.field(default_factory=dict)
    """Time in seconds until which a user's jobs may not run, by user."""
    wishes: dict[int, tuple[str | None, int]] = dataclasses.field(default_factory=dict)
    """The requested GPU type and maximum GPUs of jobs for which the cluster had too few, by job row."""
    by_job: tuple[dict[int, Any], ...] = dataclasses.field(init=False, repr=False)
    """The dictionaries above from which an ended job is removed."""

    def __post_init__(self) -> None:
        rates = self.measured, self.measured_at_others
        self.by_job = *rates, self.adaptations, self.coming_regimes, self.starts_at, self.wishes


@dataclasses.dataclass(slots=True)
class Counters:
    """Counters that only increase, and the causes of the next round."""

    seed: int
    """Seed of all random choices."""
    round: int = 0
    version: Version = _NO_VERSION
    """Version of the last step; each step closes one version."""
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
    """Time of the first of these causes, in seconds."""
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
        """Count a random generator that a stage requests."""
        self.draws += 1
