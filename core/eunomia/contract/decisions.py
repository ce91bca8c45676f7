"""Decisions: the target state of a step and its reasons, complete enough to be replayed without the plugins."""

from collections.abc import Collection
from enum import Enum
from typing import Self

from eunomia.contract.offers import Offer
from eunomia.contract.records import PlainColumn
from eunomia.contract.verdicts import Reason
from eunomia.model.shapes import LazyFields, builds, lazy, value
from eunomia.units import NEVER, AppId, Cause, Epoch, Ints, JobId, LeaseId, OfferId, Reals, Seconds, Stage, Version


class Charge(Enum):
    """What a job pays for a transition before it runs with its new resources, in the names of ``--cost``."""

    NOTHING = "nothing"
    START = "start"
    """``start``, and ``restore`` if the job ran before; counted as a restart then."""
    MIGRATE = "migrate"
    """``start``, ``restore`` and ``migrate``; counted as a migration."""
    JOIN = "join"
    """``join`` while the job runs on, then ``pause``; ``pause`` alone where the job cannot run on."""
    PAUSE = "pause"


@value
class Effect:
    """What an order of one kind does to its lease and job. Whatever handles orders asks this, and compares no kinds."""

    past: str
    """What was done to the job: it was "started". Also the column of the table of rounds that counts the orders."""
    charge: Charge = Charge.NOTHING
    starts: bool = False
    """The order begins a lease."""
    ends: bool = False
    """The order leaves the lease without GPUs."""
    releases: bool = False
    """The lease only gives GPUs back: adopted before the orders that get these GPUs."""
    keeps_running: bool = False
    """The job runs with its old resources until it can use the new ones."""
    counted: bool = True
    """Whether the table of rounds has a column for the kind; a job with an uncounted order kept its GPUs."""


class TransitionKind(Enum):
    """The kind of change to a lease; a lease that stays as it is gets no transition."""

    _value_: str
    effect: Effect
    __hash__ = object.__hash__  # by identity, as of Named: a dictionary of kinds needs no Python call

    def __new__(cls, word: str, effect: Effect) -> Self:
        """Make a kind of its word, which is its value, and its effect."""
        kind = object.__new__(cls)
        kind._value_, kind.effect = word, effect
        return kind

    START = "start", Effect(past="started", charge=Charge.START, starts=True)
    GROW = "grow", Effect(past="grown", charge=Charge.JOIN, keeps_running=True)
    SHRINK = "shrink", Effect(past="shrunk", charge=Charge.PAUSE, releases=True)
    MIGRATE = "migrate", Effect(past="migrated", charge=Charge.MIGRATE)
    SUSPEND = "suspend", Effect(past="suspended", releases=True, ends=True)
    RETUNE = "retune", Effect(past="retuned", keeps_running=True, counted=False)
    """The lease gets other CPUs or memory on the same GPUs; its epoch stays. What is lowered counts as in use until
    executors have confirmed it, and what is raised waits until its machines have room."""
    PROBE = "probe", Effect(past="probed", charge=Charge.START, counted=False)
    """The job is restarted on the GPUs of ``Transition.probe``, to measure its rate there, or after that on its own;
    the lease keeps the job's own GPUs meanwhile."""


COUNTED = tuple(dict.fromkeys(kind.effect.past for kind in TransitionKind if kind.effect.counted))
"""Columns of the table of rounds that count orders by kind; kinds with the same ``past`` share a column."""
_STARTED = {kind.effect.past for kind in TransitionKind if kind.effect.starts}
CHANGED = tuple(past for past in COUNTED if past not in _STARTED)
"""Columns that count jobs that had GPUs and did not keep exactly these."""


def kind_of_resize(before: Collection[int], after: Collection[int], lost: Collection[int]) -> TransitionKind:
    """Return the kind of an order that replaces a job's GPUs ``before`` by ``after``; ``lost`` are given back."""
    if not after:
        return TransitionKind.SUSPEND
    if set(after) <= set(before):
        return TransitionKind.SHRINK
    return TransitionKind.MIGRATE if lost else TransitionKind.GROW


@builds
class ProbeOrder:
    """The setting at which a job measures its rate."""

    gpus: Ints
    """GPUs on which the job runs, some or all of its lease's."""
    cpus: float
    """CPUs for these GPUs together; NaN: those of the lease."""
    memory_gib: float
    """Memory in GiB for the same GPUs; NaN as for the CPUs."""
    iterations: int
    """Steps that the job makes there."""
    until: Seconds
    """Latest time at which the job goes back to its own GPUs."""


@builds
class Transition(LazyFields):
    """An order about one lease. ``gpus`` are all GPUs of the lease from now on; none with SUSPEND."""

    kind: TransitionKind
    lease: LeaseId
    epoch: Epoch
    app: AppId
    job: JobId | None
    """Job of the lease; None: the app divides the lease among its jobs."""
    gpus: Ints
    cpus: Reals
    """CPUs of each GPU of ``gpus``."""
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
    cpus_range: tuple[float, float] | None = None
    """The least and the most CPUs of the lease, for all its GPUs together; None: unchanged, and unlimited at first."""
    memory_range: tuple[float, float] | None = None
    probe: ProbeOrder | None = None
    """With PROBE: where the job measures its rate; None: it goes back to its own GPUs."""


lazy(Transition, gpus="int64", leaving="int64", after="int64")


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
    """Reason for which the job waits; None: it waits no longer."""
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
