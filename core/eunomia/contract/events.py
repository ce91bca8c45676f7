"""Events: the entire input of the arbiter, as values that are written to the journal.

Simultaneous events form one step and are applied in the order of ``event_order.ORDER``, by id within a type. An
event happens at the step's time unless its ``at`` is earlier. The end of a lease is no event, as it is set in advance.
A compound event combines several events that often occur together; the journal contains the individual events.
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
"""A placeholder for the time of the step in which an event is applied."""
JOB_ENDED: Final = "an event must name a job that has not ended"
"""The rule broken by a report that arrives after its job ended, which is common, as reports are asynchronous."""


class EventError(InputError):
    """An event contradicts the state and was not applied."""


@value
class ProfileChanged:
    """The operator chose a profile, or returns to the chosen profile after a fallback."""

    profile: str


@value
class KindProfiled:
    """The operator set all known rates of a kind of job; without rates, the kind is removed."""

    kind: str
    rates: tuple[KnownRate, ...]

    def check(self, cluster: Cluster) -> None:
        """Check that a job on this cluster could have these rates.

        Raises:
            EventError: the cluster lacks a GPU type, a size exceeds the cluster, or a number is out of bounds.
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
    """End of the ban, in seconds since the start; a time that has passed lets the jobs run again."""


@value
class MachineJoined:
    """A machine joined the cluster; its GPUs are numbered after all GPUs that ever joined."""

    machine: str
    """Name of the machine, unique in the cluster; the name of a machine that left may be used again."""
    gpu_type: str
    gpus: int
    rack: str = "r1"
    island: int | None = None
    cpus: float | None = None
    memory_gib: float | None = None

    def described(self) -> Machine:
        """Return the joined machine as a ``Machine``, for ``Cluster.grown``."""
        names = [field.name for field in dataclasses.fields(Machine) if field.name != "name"]
        return Machine(name=self.machine, **{name: getattr(self, name) for name in names})


@value
class MachineLeft:
    """A machine left the cluster with no process running on it; the numbers of its GPUs are not reused."""

    machine: str


@value
class MachineDraining:
    """A machine is drained: no lease begins on it, and its leases end with their term, at the latest by ``until``."""

    machine: str
    until: Seconds = NEVER
    """Time, in seconds, by which the last process on the machine must have ended."""


@value
class MachineKept:
    """The drain of a machine was cancelled: leases may begin on it again."""

    machine: str


@value
class MachineLost:
    """A machine does not respond, or some of its GPUs failed: these GPUs are down."""

    machine: str
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that are down; empty: all GPUs of the machine."""


@value
class MachineBack:
    """A machine responds again, or some of its GPUs recovered; no process runs on them."""

    machine: str
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that recovered; empty: all GPUs of the machine."""


@value
class Released:
    """The holder of a lease released GPUs, by the order with this epoch or voluntarily."""

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
    """A job completed its work, or its tuner ended it."""

    job: JobId


@value
class JobFailed:
    """A job failed. ``again_in``: seconds until the job may be restarted; None: never."""

    job: JobId
    again_in: Seconds | None = None
    why: str = ""


@value
class AppFinished:
    """An app ended: it completed its work, or it failed for the reason ``why``."""

    app: AppId
    failed: bool = False
    why: str = ""


@value
class AppCancelled:
    """The user cancelled an app."""

    app: AppId


@value
class Started:
    """The start of a lease, ordered with this epoch, is complete: the processes of its job run."""

    lease: LeaseId
    epoch: Epoch
    at: Seconds = NOW
    """Time of the start, at most the step's time; NaN: the step's time."""


@value
class Resized:
    """The job of a lease runs at its new size or on its new GPUs."""

    lease: LeaseId
    epoch: Epoch
    at: Seconds = NOW
    """Time of the resize, at most the step's time; NaN: the step's time."""


@value
class Retuned:
    """The CPUs and memory ordered for a lease with this epoch are in effect, on the same GPUs."""

    lease: LeaseId
    epoch: Epoch
    gpus: tuple[int, ...]
    cpus: tuple[float, ...]
    """CPUs that the processes on each GPU of ``gpus`` may use from now on."""
    memory_gib: tuple[float, ...]


@value
class JobReported:
    """A job's progress report: iterations done so far, and iterations per second from now on."""

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
    """Measured rate in iterations per second; 0: the job cannot run at this setting."""
    gpu_type: str
    batch_size: float = math.nan
    """Global batch size at which the rate was measured; NaN: the rate holds at any."""
    cpus: float = math.nan
    """CPUs of the job for all its GPUs together; NaN: not known."""
    memory_gib: float = math.nan
    """Memory of the job in GiB for all its GPUs together; NaN: not known."""
    date: str = ""
    """Date of the measurement in UTC, such as "2026-11-23"; empty: not known."""


@value
class RegimesAnnounced:
    """All regimes of a job after the present one, in order; they replace any earlier announcement.

    The regimes cover the last part of the job's work. As the job progresses through them, an announcement need not be
    repeated. An empty announcement means that the present regime is the last.
    """

    job: JobId
    regimes: tuple[ComingRegime, ...]


@value
class ForecastReported:
    """An app's latest forecast of its remaining work."""

    app: AppId
    forecast: Forecast


@value
class Adapted:
    """A job changed its global batch size."""

    job: JobId
    batch_size: float
    iterations_done: float = math.nan
    """Iterations done at the change; NaN: extrapolated from the job's last report."""
    at: Seconds = NOW
    """Time of the change, at most the step's time; NaN: the step's time."""


@value
class RoundEnded:
    """A round of an executor that works in rounds ended, so a round of the arbiter is due."""

    jobs: tuple[JobId, ...] = ()
    """Jobs that held GPUs in the executor's round but did not run for all of it."""
    idle_seconds: tuple[Seconds, ...] = ()
    """Seconds that each job was idle; they are subtracted from the job's seconds and GPU-seconds in the ledger."""


@value
class JobsDivided:
    """The app's tuner divided the app's leases among its jobs; lists the GPUs of every running job of the app."""

    app: AppId
    jobs: tuple[JobId, ...]
    gpus: tuple[tuple[int, ...], ...]


@value
class JobPaused:
    """The app paused a job, or the app is suspended."""

    job: JobId
    suspended: str = ""
    """Why the app is suspended; empty if the app itself paused the job."""


@value
class JobResumed:
    """The app resumed a paused job, such as a promoted trial."""

    job: JobId
    iterations: float = math.nan
    """The job's new total work, in iterations; NaN: unchanged."""
    most: int | None = None
    """The job's new maximum number of GPUs, such as in a later phase; None: unchanged."""


@value
class AppArrived:
    """An app registered with the arbiter."""

    app: AppId
    user: UserId
    weight: float = 1.0
    user_weight: float = 1.0
    tuner_kind: str = "none"
    divides: bool = True
    """Whether the app has an app master, which divides the app's GPUs among its jobs."""
    again: bool = False
    """Whether an app with this id ended before and now continues."""


@value
class JobAdded:
    """An app added a job that is ready to run."""

    job: JobId
    app: AppId
    least: int = 1
    most: int = 1
    iterations: float = math.nan
    seconds_per_iteration: float = math.nan
    """Declared duration of an iteration on one GPU, in seconds; NaN: not declared."""
    kind: str | None = None
    """The job's kind; jobs of a kind share a menu. None: all such jobs of the app form one kind."""
    gpu_type: str | None = None
    cpus_per_gpu: float = math.nan
    memory_gib_per_gpu: float = math.nan
    batch_size: float = math.nan
    """Initial global batch size; NaN: not declared."""
    epochs: float = math.nan
    """Number of epochs (passes over the data set) of the job; NaN: not declared."""
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
    """An app registered with its first job: ``AppArrived`` and ``JobAdded`` combined."""

    arrival: AppArrived
    job: JobAdded


@value
class SingleJobEnded:
    """The only job of an app completed its work and released its GPUs, and the app ended.

    Combines ``Released``, ``JobFinished`` and ``AppFinished``.
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
