"""Decisions: the target state after a step, with reasons, complete enough for a replay without plugins."""

from collections.abc import Collection
from enum import Enum
from typing import Self

from eunomia.contract.offers import Offer
from eunomia.contract.records import PlainColumn
from eunomia.contract.verdicts import Reason
from eunomia.model.shapes import LazyFields, builds, lazy, maker, value
from eunomia.units import NEVER, AppId, Cause, Epoch, Ints, JobId, LeaseId, OfferId, Reals, Seconds, Stage, Version


class Charge(Enum):
    """The costs that a job incurs in a transition before it runs with its new resources, as named by ``--cost``."""

    NOTHING = "nothing"
    START = "start"
    """``start``, plus ``restore`` if the job ran before, which then counts as a restart."""
    MIGRATE = "migrate"
    """``start``, ``restore`` and ``migrate``; the transition counts as a migration."""
    JOIN = "join"
    """``join`` while the job keeps running, then ``pause``; only ``pause`` if the job cannot keep running."""
    PAUSE = "pause"


@value
class Effect:
    """The effect of a kind of order on its lease and job, so that callers need not compare kinds."""

    past: str
    """Past participle of the order, such as "started"; also the name of its column in the table of rounds."""
    charge: Charge = Charge.NOTHING
    starts: bool = False
    """Whether the order begins a lease."""
    ends: bool = False
    """Whether the order leaves the lease without GPUs."""
    releases: bool = False
    """Whether the lease only releases GPUs; such orders are applied before the orders that receive these GPUs."""
    keeps_running: bool = False
    """Whether the job runs with its old resources until it can use the new ones."""
    counted: bool = True
    """Whether the table of rounds has a column for the kind; a job with an uncounted order kept its GPUs."""


class TransitionKind(Enum):
    """The kind of change to a lease; an unchanged lease gets no transition."""

    _value_: str
    effect: Effect
    __hash__ = object.__hash__  # by identity, as in Named: a dictionary lookup runs no Python code

    def __new__(cls, word: str, effect: Effect) -> Self:
        """Create a member whose value is ``word``, with its effect."""
        kind = object.__new__(cls)
        kind._value_, kind.effect = word, effect
        return kind

    START = "start", Effect(past="started", charge=Charge.START, starts=True)
    GROW = "grow", Effect(past="grown", charge=Charge.JOIN, keeps_running=True)
    SHRINK = "shrink", Effect(past="shrunk", charge=Charge.PAUSE, releases=True)
    MIGRATE = "migrate", Effect(past="migrated", charge=Charge.MIGRATE)
    SUSPEND = "suspend", Effect(past="suspended", releases=True, ends=True)
    RETUNE = "retune", Effect(past="retuned", keeps_running=True, counted=False)
    """The lease gets other CPUs or memory on the same GPUs and keeps its epoch. Amounts that are lowered count as in
    use until executors confirm the change; amounts that are raised wait until their machines have room."""
    PROBE = "probe", Effect(past="probed", charge=Charge.START, counted=False)
    """The job is restarted on the GPUs of ``Transition.probe`` to measure its rate there, or afterwards on its own
    GPUs, which its lease keeps in the meantime."""


COUNTED = tuple(dict.fromkeys(kind.effect.past for kind in TransitionKind if kind.effect.counted))
"""Columns of the table of rounds that count orders by kind; kinds with the same ``past`` share a column."""
_STARTED = {kind.effect.past for kind in TransitionKind if kind.effect.starts}
CHANGED = tuple(past for past in COUNTED if past not in _STARTED)
"""Columns that count jobs that had GPUs and did not keep exactly the same ones."""


def kind_of_resize(before: Collection[int], after: Collection[int], lost: Collection[int]) -> TransitionKind:
    """Return the kind of an order that replaces a job's GPUs ``before`` by ``after`` and releases ``lost``."""
    if not after:
        return TransitionKind.SUSPEND
    if set(after) <= set(before):
        return TransitionKind.SHRINK
    return TransitionKind.MIGRATE if lost else TransitionKind.GROW


@builds
class ProbeOrder:
    """The setting at which a job measures its rate."""

    gpus: Ints
    """GPUs on which the job is measured: some or all GPUs of its lease."""
    cpus: float
    """CPUs for these GPUs together; NaN: those of the lease."""
    memory_gib: float
    """Memory in GiB for these GPUs together; NaN: that of the lease."""
    iterations: int
    """Number of iterations that the job runs at this setting."""
    until: Seconds
    """Latest time, in seconds, at which the job returns to its own GPUs."""


@builds
class Transition(LazyFields):
    """An order to change one lease. ``gpus`` are all GPUs of the lease from now on; empty with SUSPEND."""

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
    """GPUs that the lease must release."""
    fence: Epoch
    """Epoch of the order to release ``leaving``: older than the epoch of the lease that gets these GPUs, even if
    two leases swap GPUs. An executor starts no process of this epoch or an older one on these GPUs."""
    after: Ints
    """GPUs among ``gpus`` that another holder must release before this transition begins."""
    deadline: Seconds = NEVER
    """Time, in seconds, at which processes that still run on ``leaving`` are killed."""
    cpus_range: tuple[float, float] | None = None
    """Minimum and maximum CPUs of the lease, for all its GPUs together; None: unchanged (unlimited for a new lease)."""
    memory_range: tuple[float, float] | None = None
    probe: ProbeOrder | None = None
    """With PROBE: the setting at which the job measures its rate; None: it returns to its own GPUs."""


lazy(Transition, "cpus", "memory_gib", gpus="int64", leaving="int64", after="int64")


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
    """Reason for which the job waits; None if it no longer waits."""
    stage: Stage | None = None
    plugin: str = ""


@value
class Fault:
    """A fault of a plugin's stage, after which the round changed nothing; without a stage, a refused event."""

    plugin: str
    stage: Stage | None
    what: str


@builds
class RecordTable:
    """A plugin's record for the journal, as columns of plain values."""

    plugin: str
    table: str
    columns: dict[str, PlainColumn]


@value
class MemoChange:
    """A changed memo, for the journal; the memo is dropped if ``data`` is None."""

    plugin: str
    stage: Stage
    version: int
    data: bytes | None


@builds
class Decision:
    """The result of a step. ``round`` is the number of the last round made, in this step or an earlier one."""

    now: Seconds
    round: int
    version: Version
    causes: frozenset[Cause] = frozenset()
    """Causes of the round made in this step; empty if the step made no round."""
    offers: tuple[Offer, ...] = ()
    """Offers opened in this step, to be sent to app masters."""
    closed: OfferId | None = None
    orders: tuple[Transition, ...] = ()
    """Orders that follow from events alone: jobs and apps that ended, failed or paused release their GPUs."""
    transitions: tuple[Transition, ...] = ()
    """Transitions that the round decided."""
    renewals: tuple[Renewal, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    starts_at: tuple[tuple[JobId, float], ...] = ()
    """Planned starts of waiting jobs, in seconds."""
    records: tuple[RecordTable, ...] = ()
    faults: tuple[Fault, ...] = ()
    memos: tuple[MemoChange, ...] = ()
    serving: str = ""
    """Name of the profile in use: the chosen profile or the fallback."""
    wake_at: Seconds = NEVER
    """Time, in seconds, at which the next step is due if no event occurs before."""
    stage_wake_at: Seconds = NEVER
    """Time, in seconds, at which a stage requested a round."""

    @property
    def faulty(self) -> bool:
        """Return whether a stage failed, so that the round changed nothing; refused events make no round faulty."""
        return any(fault.stage is not None for fault in self.faults)


new_decision, new_transition = maker(Decision), maker(Transition)
