"""Decisions: the target state of a step and its reasons, complete enough to be replayed without the plugins."""

from enum import Enum

from eunomia.contract.offers import Offer
from eunomia.contract.records import PlainColumn
from eunomia.contract.verdicts import Reason
from eunomia.model.shapes import builds, value
from eunomia.units import NEVER, AppId, Cause, Epoch, Ints, JobId, LeaseId, OfferId, Reals, Seconds, Stage, Version


class TransitionKind(Enum):
    """The kind of change to a lease; a lease that stays as it is gets no transition."""

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MIGRATE = "migrate"
    SUSPEND = "suspend"
    RETUNE = "retune"
    """The lease gets other CPUs or memory on the same GPUs."""
    PROBE = "probe"
    """The job measures its rate at given sizes while it runs."""


@builds
class Transition:
    """An order about one lease. ``gpus`` are all GPUs of the lease from now on; none with SUSPEND."""

    kind: TransitionKind
    lease: LeaseId
    epoch: Epoch
    app: AppId
    job: JobId | None
    """None: the app divides the lease among its jobs."""
    gpus: Ints
    cpus: Reals
    """By GPU of ``gpus``."""
    memory_gib: Reals
    ends_at: Seconds
    protected_until: Seconds
    leaving: Ints
    """GPUs that the lease has to give back."""
    fence: Epoch
    """The epoch of the order to give ``leaving`` back: older than the epoch of the lease that gets them, also where two
    leases swap GPUs. An executor starts nothing of this epoch or an older one on these GPUs."""
    after: Ints
    """GPUs of ``gpus`` that another holder must give back before this transition begins."""
    deadline: Seconds = NEVER
    """Time at which processes that still run on ``leaving`` are killed."""


@builds
class Renewal:
    """A lease continues unchanged until ``ends_at``; its job is not restarted."""

    lease: LeaseId
    ends_at: Seconds
    protected_until: Seconds


@value
class Waiting:
    """A changed verdict: the reason for which a job waits."""

    job: JobId
    reason: Reason | None
    """None: the job waits no longer."""
    stage: Stage | None = None
    plugin: str = ""


@value
class Fault:
    """A fault of a plugin's stage, so that the round changed nothing; without a stage: an event that was refused."""

    plugin: str
    stage: Stage | None
    what: str


@builds
class RecordTable:
    """A plugin's record as plain columns."""

    plugin: str
    table: str
    columns: dict[str, PlainColumn]


@value
class MemoChange:
    """A changed memo for the journal; ``data`` None drops the memo."""

    plugin: str
    stage: Stage
    version: int
    data: bytes | None


@builds
class Decision:
    """The result of a step. ``round`` counts rounds; a step without a round repeats the last number."""

    now: Seconds
    round: int
    version: Version
    causes: frozenset[Cause] = frozenset()
    """Causes of this step's round; empty: the step made no round."""
    offers: tuple[Offer, ...] = ()
    """Offers opened in this step, to be sent to app masters."""
    closed: OfferId | None = None
    orders: tuple[Transition, ...] = ()
    """Orders that follow from the events alone: jobs and apps that ended, failed or paused give their GPUs back."""
    transitions: tuple[Transition, ...] = ()
    """Transitions that the round decided."""
    renewals: tuple[Renewal, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    starts_at: tuple[tuple[JobId, float], ...] = ()
    """Planned starts of waiting jobs."""
    records: tuple[RecordTable, ...] = ()
    faults: tuple[Fault, ...] = ()
    memos: tuple[MemoChange, ...] = ()
    serving: str = ""
    """Name of the profile in use: the chosen one, or the fallback."""
    wake_at: Seconds = NEVER
    """Time when the next step is due if no event comes."""
    stage_wake_at: Seconds = NEVER
    """Time for which a stage asked for a round."""

    @property
    def faulty(self) -> bool:
        """Whether a stage failed, so that the round changed nothing; refused events alone make no round faulty."""
        return any(fault.stage is not None for fault in self.faults)
