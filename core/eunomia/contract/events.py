"""Events: all input of the arbiter, as values that the journal keeps.

Events of one instant form one step and are folded in the order of ``event_order.ORDER``, within a kind by id. An event
takes place at the step's time unless it gives an earlier one. The end of a lease is no event: it follows from the time.
A compound event stands for several events that often come together; the journal keeps those.
"""

import dataclasses
import math
from typing import Final

from eunomia.contract.valuations import Form
from eunomia.errors import InputError
from eunomia.model.adaptations import Adapts, ComingRegime
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.forecasts import Forecast
from eunomia.model.kind_profiles import MOST_POINTS, KnownRate
from eunomia.model.shapes import builds, value
from eunomia.units import NEVER, AppId, Epoch, JobId, LeaseId, Locality, OfferId, Seconds, UserId

NOW: Final = Seconds(math.nan)
"""The time of the step in which an event is folded."""
JOB_ENDED: Final = "an event must name a job that has not ended"
"""The rule that a report breaks if it comes after its job's end, which is usual where reports and ends cross."""


class EventError(InputError):
    """An event that contradicts the state; it changes nothing."""


@value
class ProfileChanged:
    """The operator chose a profile, or asks for the chosen one again after a fallback."""

    profile: str


@value
class KindProfiled:
    """The operator gave all rates that are known of a kind of job; none: the kind is dropped."""

    kind: str
    rates: tuple[KnownRate, ...]

    def check(self, cluster: Cluster) -> None:
        """Refuse rates that no job of this cluster can have.

        Raises:
            EventError: a type that the cluster lacks, a size beyond the cluster, or a number out of its bounds.
        """
        if len(self.rates) > MOST_POINTS:
            rule = f"a kind must have at most {MOST_POINTS} points"
            raise EventError(rule, value=str(len(self.rates)), place=self.kind)
        types = cluster.gpu_types
        for number, rate in enumerate(self.rates, start=1):
            place = f"{self.kind}, point {number}"
            if rate.gpu_type not in types:
                rule = f"a GPU type must be one of {', '.join(types)}"
                raise EventError(rule, value=f'"{rate.gpu_type}"', place=place)
            most = cluster.capacity.item(types.index(rate.gpu_type))
            if not 1 <= rate.gpus <= most:
                raise EventError(f"GPUs must be from 1 to {most}", value=str(rate.gpus), place=place)
            if not 0.0 <= rate.rate < math.inf:
                raise EventError("a rate must be a number of 0 or more", value=str(rate.rate), place=place)
            for name in ("batch_size", "cpus", "memory_gib"):
                amount = getattr(rate, name)
                if not (math.isnan(amount) or 0.0 < amount < math.inf):
                    raise EventError(f"{name} must be a number above 0", value=str(amount), place=place)


@value
class UserHeld:
    """A user has used up its GPU hours of the day: none of its jobs may run before ``until``."""

    user: UserId
    until: Seconds
    """Seconds since the start; not later than now: its jobs may run."""


@value
class MachineJoined:
    """A machine is part of the cluster from now on; its GPUs get the numbers behind all numbers given before."""

    machine: str
    """A name that no machine of the cluster has; one that left may have had it."""
    gpu_type: str
    gpus: int
    rack: str = "r1"
    island: int | None = None
    cpus: float | None = None
    memory_gib: float | None = None

    def described(self) -> Machine:
        """Return the machine."""
        names = [field.name for field in dataclasses.fields(Machine) if field.name != "name"]
        return Machine(name=self.machine, **{name: getattr(self, name) for name in names})


@value
class MachineLeft:
    """A machine is no longer part of the cluster, and nothing runs on it; numbers of its GPUs are not given again."""

    machine: str


@value
class MachineDraining:
    """No lease begins on a machine from now on; those on it end with their term, and at the latest before ``until``."""

    machine: str
    until: Seconds = NEVER
    """Time in seconds by which the last process on it has ended."""


@value
class MachineKept:
    """A machine that was draining stays: leases begin on it again."""

    machine: str


@value
class MachineLost:
    """A machine does not answer, or some of its GPUs are gone: these GPUs are down."""

    machine: str
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that are down; empty: all of the machine."""


@value
class MachineBack:
    """A machine answers again, or some of its GPUs are back, and nothing runs on them."""

    machine: str
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that are back; empty: all of the machine."""


@value
class Released:
    """A lease's holder has given GPUs back, by the order of that epoch or without an order."""

    lease: LeaseId
    epoch: Epoch
    gpus: tuple[int, ...]
    at: Seconds = NOW
    """Time of the release, at most the step's time; NaN: the step's time."""


@value
class GpusReturned:
    """An app returns GPUs that it cannot use; nothing runs on them."""

    app: AppId
    gpus: tuple[int, ...]


@value
class JobFinished:
    """A job did all its work, or its tuner ended it."""

    job: JobId


@value
class JobFailed:
    """A job failed. ``again_in``: seconds until the job is tried again; None: never."""

    job: JobId
    again_in: Seconds | None = None
    why: str = ""


@value
class AppFinished:
    """An app ended: all its work is done, or it failed for the reason ``why``."""

    app: AppId
    failed: bool = False
    why: str = ""


@value
class AppCancelled:
    """The user cancelled the app."""

    app: AppId


@value
class Started:
    """A lease runs as the transition of that epoch ordered."""

    lease: LeaseId
    epoch: Epoch
    at: Seconds = NOW
    """Time of the start, at most the step's time; NaN: the step's time."""


@value
class Resized:
    """A lease's job runs at its new size or on its new GPUs."""

    lease: LeaseId
    epoch: Epoch
    at: Seconds = NOW
    """Time of the resize, at most the step's time; NaN: the step's time."""


@value
class Retuned:
    """A lease has the CPUs and memory that the order of that epoch gave it, on the same GPUs."""

    lease: LeaseId
    epoch: Epoch
    gpus: tuple[int, ...]
    cpus: tuple[float, ...]
    """By GPU of ``gpus``: what its processes may use from now on."""
    memory_gib: tuple[float, ...]


@value
class JobReported:
    """A job's progress: iterations done at the time of the report, and iterations per second from then on."""

    job: JobId
    iterations_done: float
    rate: float
    at: Seconds = NOW
    """Time of the report, at most the step's time; NaN: the step's time."""


@value
class RateMeasured:
    """The measured rate of a job, in iterations per second, at a size, GPU type and locality."""

    job: JobId
    gpus: int
    locality: Locality
    rate: float
    """Measured rate; 0: the job does not run there."""
    gpu_type: str
    batch_size: float = math.nan
    """Global batch size at which the rate was measured; NaN: the rate holds at any."""
    cpus: float = math.nan
    """CPUs that the job had for all its GPUs together; NaN: not known."""
    memory_gib: float = math.nan
    """Memory in GiB for the same GPUs; NaN as for the CPUs."""
    date: str = ""
    """The day of the measurement in UTC, as in "2026-11-23"; empty: not known."""


@value
class RegimesAnnounced:
    """All regimes of a job after the present one, in order; they replace what was announced before.

    The regimes are the last of the job's work. As the job does this work, the first of them become its present ones:
    an announcement need not be repeated. No regimes: the present one is the last.
    """

    job: JobId
    regimes: tuple[ComingRegime, ...]


@value
class ForecastReported:
    """An app's newest forecast of its remaining work."""

    app: AppId
    forecast: Forecast


@value
class Adapted:
    """A job changed its global batch size."""

    job: JobId
    batch_size: float
    iterations_done: float = math.nan
    """Iterations done at the change; NaN: as follows from the job's last report."""
    at: Seconds = NOW
    """Time of the change, at most the step's time; NaN: the step's time."""


@value
class RoundEnded:
    """A round of an executor that works in rounds has ended: a round of the arbiter is due."""

    jobs: tuple[JobId, ...] = ()
    """Jobs that held GPUs in the executor's round but did not run for all of it."""
    idle_seconds: tuple[Seconds, ...] = ()
    """By job: seconds without running; the ledger's seconds and GPU-seconds of the job are reduced by them."""


@value
class JobsDivided:
    """The app's tuner divides the app's leases among its jobs: the GPUs of every job of the app that runs."""

    app: AppId
    jobs: tuple[JobId, ...]
    gpus: tuple[tuple[int, ...], ...]


@value
class JobPaused:
    """The app does not want the job to run now, or the app is suspended."""

    job: JobId
    suspended: str = ""
    """Why the app is suspended; empty: it is not, and paused the job itself."""


@value
class JobResumed:
    """The app wants a paused job to run again, such as a promoted trial."""

    job: JobId
    iterations: float = math.nan
    """The job's whole work from now on, in iterations; NaN: as before."""
    most: int | None = None
    """The most GPUs that it can use from now on, such as those of a later phase; None: as before."""


@value
class AppArrived:
    """An app registered."""

    app: AppId
    user: UserId
    weight: float = 1.0
    user_weight: float = 1.0
    tuner_kind: str = "none"
    divides: bool = True
    """Whether the app has an app master, which divides the app's GPUs among its jobs."""
    again: bool = False
    """Whether an app of this id has ended before and goes on."""


@value
class JobAdded:
    """A job of an app exists and wants to run."""

    job: JobId
    app: AppId
    least: int = 1
    most: int = 1
    iterations: float = math.nan
    seconds_per_iteration: float = math.nan
    """Declared time of an iteration on one GPU."""
    kind: str | None = None
    """Jobs of a kind share a menu; None: one kind for all such jobs of the app."""
    gpu_type: str | None = None
    cpus_per_gpu: float = math.nan
    memory_gib_per_gpu: float = math.nan
    batch_size: float = math.nan
    """Global batch size at the start; NaN: not declared."""
    epochs: float = math.nan
    """Passes over the data set that the job makes; NaN: not declared."""
    samples_per_epoch: float = math.nan
    adapts: Adapts = Adapts.UNKNOWN
    """How the job changes its batch size."""


@builds
class BidReceived:
    """An app master's bid for an open offer."""

    app: AppId
    offer: OfferId
    form: Form


@value
class SingleJobArrived:
    """An app registered together with its first job: ``AppArrived`` and ``JobAdded`` in one."""

    arrival: AppArrived
    job: JobAdded


@value
class SingleJobEnded:
    """An app's only job did all its work, gave its GPUs back, and the app ended.

    ``Released``, ``JobFinished`` and ``AppFinished`` in one.
    """

    app: AppId
    job: JobId
    lease: LeaseId
    epoch: Epoch
    gpus: tuple[int, ...]


Event = (
    ProfileChanged
    | KindProfiled
    | UserHeld
    | MachineLeft
    | MachineJoined
    | MachineLost
    | MachineBack
    | MachineDraining
    | MachineKept
    | Released
    | GpusReturned
    | JobFinished
    | JobFailed
    | AppFinished
    | AppCancelled
    | Retuned
    | Started
    | Resized
    | JobReported
    | RateMeasured
    | RegimesAnnounced
    | ForecastReported
    | Adapted
    | RoundEnded
    | JobsDivided
    | JobPaused
    | JobResumed
    | AppArrived
    | JobAdded
    | BidReceived
    | SingleJobArrived
    | SingleJobEnded
)
