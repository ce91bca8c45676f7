"""What was decided, and why: a target that the cluster follows, complete enough to be replayed without the plugins."""

from enum import Enum

from eunomia.contract.offers import Offer
from eunomia.contract.records import PlainColumn
from eunomia.contract.verdicts import Reason
from eunomia.model.shapes import builds, value
from eunomia.units import NEVER, AppId, Cause, Epoch, Ints, JobId, LeaseId, OfferId, Reals, Seconds, Stage, Version


class TransitionKind(Enum):
    """What is to change; who stays is not named."""

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MIGRATE = "migrate"
    SUSPEND = "suspend"
    RETUNE = "retune"
    """Other CPUs or memory on the same GPUs."""
    PROBE = "probe"
    """Measure at given sizes while running."""


@builds
class Transition:
    """An order about one lease. ``gpus`` are all that the lease has from now on; with SUSPEND none."""

    kind: TransitionKind
    lease: LeaseId
    epoch: Epoch
    app: AppId
    job: JobId | None
    """None: the app divides."""
    gpus: Ints
    cpus: Reals
    """By GPU of ``gpus``."""
    memory_gib: Reals
    ends_at: Seconds
    protected_until: Seconds
    leaving: Ints
    """GPUs that the lease has to give back."""
    fence: Epoch
    """The epoch under which they are given back: smaller than the epoch of whoever gets them, also where two leases
    swap GPUs. Nothing of this epoch or an older one may be started on them."""
    after: Ints
    """GPUs of ``gpus`` that another holder must give back before this begins."""
    deadline: Seconds = NEVER
    """When what has not left is killed."""


@builds
class Renewal:
    """A lease that goes on as it is, until ``ends_at``: bookkeeping, nothing is restarted."""

    lease: LeaseId
    ends_at: Seconds
    protected_until: Seconds


@value
class Waiting:
    """Why a job waits: a verdict that changed."""

    job: JobId
    reason: Reason | None
    """None: it waits no longer."""
    stage: Stage | None = None
    plugin: str = ""


@value
class Fault:
    """A plugin, or the round as a whole, broke the rules; the round changed nothing."""

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
    """A memo as it goes into the journal; ``data`` None drops it."""

    plugin: str
    stage: Stage
    version: int
    data: bytes | None


@builds
class Decision:
    """The outcome of a step. ``round`` counts rounds; a step without one repeats the last number."""

    now: Seconds
    round: int
    version: Version
    causes: frozenset[Cause] = frozenset()
    """Why this step made a round; empty: it made none."""
    offers: tuple[Offer, ...] = ()
    """Offers opened, to be sent to app masters."""
    closed: OfferId | None = None
    orders: tuple[Transition, ...] = ()
    """What followed from the events alone: GPUs that jobs and apps which ended, failed or paused have to give back."""
    transitions: tuple[Transition, ...] = ()
    """What the round decided."""
    renewals: tuple[Renewal, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    starts_at: tuple[tuple[JobId, float], ...] = ()
    """Planned starts of waiting jobs."""
    records: tuple[RecordTable, ...] = ()
    faults: tuple[Fault, ...] = ()
    memos: tuple[MemoChange, ...] = ()
    serving: str = ""
    """Name of the profile that served: the chosen one, or the fallback."""
    wake_at: Seconds = NEVER
    """When the next step is due without news."""
    stage_wake_at: Seconds = NEVER
    """When a stage asked for a round."""

    @property
    def faulty(self) -> bool:
        """A stage failed, and the round came to nothing; refused events alone are no faulty round."""
        return any(fault.stage is not None for fault in self.faults)
