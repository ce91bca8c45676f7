"""Scenes for testing a policy: an ordinary one with all kinds of events, and adversarial ones."""

import dataclasses
import functools
import math
from collections.abc import Iterable

from eunomia.contract import events as kinds
from eunomia.contract.events import Event
from eunomia.model.adaptations import Adapts, ComingRegime
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.testing.drive import Delays
from eunomia.units import AppId, JobId, Locality, Seconds, UserId

Script = tuple[tuple[float, Event], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A cluster, and the events that occur on it.

    Attributes:
        name: name of the scene, for messages.
        cluster: short form of the cluster, such as ``"2x4 V100"``.
        script: events with their times in seconds.
        work: run time of each job on one GPU in seconds.
        until: end of the run in seconds.
        lease: length of leases in seconds; None: as in the profile.
        deadline: seconds that app masters have to bid, if the valuation uses bids; None: no bids are collected.
        delays: delays of the executor.
    """

    name: str
    cluster: str
    script: Script
    work: dict[JobId, float]
    until: float
    lease: float | None = None
    deadline: float | None = None
    delays: Delays = dataclasses.field(default_factory=Delays)


@dataclasses.dataclass(slots=True)
class _Script:
    """Builds the events of a scene."""

    events: list[tuple[float, Event]] = dataclasses.field(default_factory=list)
    work: dict[JobId, float] = dataclasses.field(default_factory=dict)

    def app(self, name: str, at: float, *, user: str = "ana", weight: float = 1.0, divides: bool = False) -> None:
        arrived = kinds.AppArrived(app=AppId(name), user=UserId(user), weight=weight, divides=divides)
        self.events.append((at, arrived))

    def jobs(self, app: str, at: float, sizes: Iterable[tuple[int, int]], *, work: float = 20.0) -> None:
        for number, (least, most) in enumerate(sizes):
            job = JobId(f"{app}/{number}")
            seconds = work * (1.0 + 0.37 * number)
            self.work[job] = seconds
            added = kinds.JobAdded(
                job=job,
                app=AppId(app),
                least=least,
                most=most,
                iterations=10.0 * seconds,
                seconds_per_iteration=0.1,
                kind=f"kind of {least} to {most}",
                batch_size=32.0,
            )
            self.events.append((at, added))

    def declare(self, app: str, adapts: Adapts, *, batch_size: float) -> None:
        """Set the batch size and mode of adaptation of an app's jobs; NaN: also no epochs and samples are declared."""
        known = batch_size == batch_size
        for row, (time, event) in enumerate(self.events):
            if isinstance(event, kinds.JobAdded) and event.app == app:
                epochs, samples = (10.0, 32.0 * event.iterations / 10.0) if known else (math.nan, math.nan)
                declared = dataclasses.replace(
                    event, adapts=adapts, batch_size=batch_size, epochs=epochs, samples_per_epoch=samples
                )
                self.events[row] = (time, declared)

    def forecast(self, app: str, at: float, most: int) -> None:
        jobs = (JobForecast(iterations_left=400.0, seconds_per_iteration=0.1, least=1, most=most),)
        report = Forecast(phases=(Phase(jobs=jobs),), total_gpu_seconds=40.0, most=most)
        self.events.append((at, kinds.ForecastReported(app=AppId(app), forecast=report)))

    def at(self, time: float, event: Event) -> None:
        self.events.append((time, event))

    def scene(self, name: str, cluster: str, until: float, **more: object) -> Scene:
        script = tuple(self.events)
        return Scene(name=name, cluster=cluster, script=script, work=self.work, until=until, **more)  # type: ignore[arg-type]


def town(cluster: str = "3x4 V100 16cpu 64GB", *, name: str = "town") -> Scene:
    """Return a scene with apps of one and of many jobs, both rigid and elastic.

    It includes failures, pauses, a lost machine and short leases.
    """
    made = _Script()
    made.app("ana", 0.0)
    made.jobs("ana", 0.0, [(4, 4), (1, 1), (2, 2)], work=60.0)
    made.app("ben", 0.5, user="ben", weight=2.0)
    made.jobs("ben", 0.5, [(1, 4), (2, 6)], work=90.0)
    made.app("cy", 1.0, user="cy")
    made.jobs("cy", 1.0, [(8, 8)], work=120.0)
    made.app("dee", 2.0, user="ben", divides=True)
    made.jobs("dee", 2.0, [(1, 2), (1, 2), (2, 2)], work=30.0)
    made.forecast("dee", 2.0, 6)
    made.app("eve", 3.0, user="eve", weight=0.5)
    made.jobs("eve", 3.0, [(12, 12), (1, 8), (64, 64)], work=50.0)
    made.at(9.0, kinds.JobReported(job=JobId("ana/0"), iterations_done=40.0, rate=20.0))
    made.at(12.0, kinds.JobFailed(job=JobId("ben/0"), again_in=Seconds(4.0)))
    made.at(15.0, kinds.JobPaused(job=JobId("ana/2")))
    made.at(31.0, kinds.JobResumed(job=JobId("ana/2")))
    made.at(40.0, kinds.MachineLost(machine="m02"))
    made.at(55.0, kinds.MachineBack(machine="m02"))
    made.app("fay", 50.0, user="fay")
    made.jobs("fay", 50.0, [(2, 4), (4, 4)], work=25.0)
    made.at(90.0, kinds.AppCancelled(app=AppId("eve")))
    return made.scene(name, cluster, 150.0, lease=20.0)


def of_one_user(scene: Scene) -> Scene:
    """Return a scene in which one user owns all apps."""
    script = tuple(
        (at, dataclasses.replace(event, user=UserId("ana")) if isinstance(event, kinds.AppArrived) else event)
        for at, event in scene.script
    )
    return dataclasses.replace(scene, name=f"{scene.name} of one user", script=script)


def two_kinds() -> Scene:
    """Return the scene ``town`` with two GPU types."""
    return dataclasses.replace(town("2x4 V100 16cpu 64GB, 1x4 P100 16cpu 64GB", name="two GPU types"), until=60.0)


def one_gpu() -> Scene:
    """Return a scene in which four apps compete for the only GPU."""
    made = _Script()
    for number in range(4):
        made.app(f"app{number}", 0.2 * number)
        made.jobs(f"app{number}", 0.2 * number, [(1, 1), (1, 3)], work=5.0)
    return made.scene("one GPU", "1x1 V100 4cpu 16GB", 120.0)


def too_large() -> Scene:
    """Return a scene in which every gang is larger than the cluster."""
    made = _Script()
    for number in range(3):
        made.app(f"app{number}", 0.2 * number, divides=number == 2)
        made.jobs(f"app{number}", 0.2 * number, [(9, 9), (100, 200)])
    return made.scene("all gangs too large", "2x4 V100 16cpu 64GB", 30.0)


def lost_machine() -> Scene:
    """Return a scene in which machines are lost while starts, releases, offers and acknowledgements are in transit."""
    made = _Script()
    for number in range(4):
        made.app(f"app{number}", 0.3 * number, divides=number % 2 == 0)
        made.jobs(f"app{number}", 0.3 * number, [(1, 4), (2, 2)], work=20.0)
    for time, machine in ((0.9, "m01"), (2.5, "m02"), (4.1, "m03"), (21.0, "m01")):
        made.at(time, kinds.MachineLost(machine=machine))
        made.at(time + 6.0, kinds.MachineBack(machine=machine))
    delays = Delays(order=0.5, start=1.0, release=1.5, lost=0.2)
    cluster = "3x2 V100 8cpu 32GB"
    return made.scene("a machine lost in mid-round", cluster, 80.0, lease=8.0, deadline=1.0, delays=delays)


def changing_cluster(new_type: str = "A100") -> Scene:
    """Return a scene in which machines join, one of them of ``new_type``, drain, leave and return."""
    made = _Script()
    for number in range(4):
        made.app(f"app{number}", 0.3 * number, divides=number % 2 == 0)
        made.jobs(f"app{number}", 0.3 * number, [(1, 4), (2, 2), (2, 6)], work=30.0)
    made.at(1.0, kinds.MachineDraining(machine="m03", until=Seconds(6.0)))
    made.at(4.0, kinds.MachineJoined(machine="m04", gpu_type="V100", gpus=2, cpus=8.0, memory_gib=32.0))
    made.at(6.5, kinds.MachineLeft(machine="m03"))
    made.at(9.0, kinds.MachineJoined(machine="m05", gpu_type=new_type, gpus=2, rack="r2", cpus=8.0, memory_gib=32.0))
    made.at(12.0, kinds.MachineDraining(machine="m02"))
    made.at(20.0, kinds.MachineKept(machine="m02"))
    made.at(24.0, kinds.MachineLeft(machine="m04"))
    made.at(30.0, kinds.MachineJoined(machine="m03", gpu_type="V100", gpus=2, cpus=8.0, memory_gib=32.0))
    delays = Delays(order=0.2, start=0.5, release=0.5)
    cluster = "3x2 V100 8cpu 32GB"
    return made.scene("machines that join, drain and leave", cluster, 45.0, lease=8.0, deadline=1.0, delays=delays)


def paused() -> Scene:
    """Return a scene in which all jobs are paused by their apps, and half of them resumed."""
    made = _Script()
    for number in range(3):
        made.app(f"app{number}", 0.0)
        made.jobs(f"app{number}", 0.0, [(1, 1), (2, 4)], work=40.0)
    for number in range(3):
        for job in range(2):
            made.at(4.0, kinds.JobPaused(job=JobId(f"app{number}/{job}")))
        made.at(20.0, kinds.JobResumed(job=JobId(f"app{number}/0")))
    made.at(10.0, kinds.MachineLost(machine="m02"))
    made.at(12.0, kinds.MachineBack(machine="m02"))
    return made.scene("everyone paused", "2x4 V100 16cpu 64GB", 60.0, lease=5.0)


def adapting() -> Scene:
    """Return a scene in which running, waiting and paused jobs change their batch sizes, announced or not.

    Some jobs declare batch size, epochs and mode of adaptation, some nothing; rates at some batch sizes are known.
    """
    made = _Script()
    for number, adapts in enumerate(Adapts):
        app = f"app{number}"
        made.app(app, 0.2 * number, user=f"user{number % 2}")
        made.jobs(app, 0.2 * number, [(2, 2), (1, 4)], work=30.0)
        made.declare(app, adapts, batch_size=math.nan if number == 0 else 32.0)
    for number, app in enumerate(("app1", "app2", "app3")):
        coming = (ComingRegime(iterations=90.0, rate=20.0, batch_size=64.0), ComingRegime(iterations=60.0, rate=5.0))
        made.at(0.9, kinds.RegimesAnnounced(job=JobId(f"{app}/{number % 2}"), regimes=coming))
    for number, batch_size in enumerate((64.0, 128.0, 64.0, 32.0)):
        for turn, job in enumerate(("app0/0", "app2/0", "app2/1", "app3/1", "app4/0")):
            at = 3.0 + 8.0 * number + turn
            made.at(at, kinds.Adapted(job=JobId(job), batch_size=batch_size, iterations_done=10.0 + 5.0 * number))
        rate = kinds.RateMeasured(
            job=JobId("app2/0"), gpus=2, locality=Locality.MACHINE, rate=6.0, gpu_type="V100", batch_size=batch_size
        )
        made.at(4.5 + 8.0 * number, rate)
    made.at(6.0, kinds.JobPaused(job=JobId("app4/0")))
    made.at(20.0, kinds.JobResumed(job=JobId("app4/0")))
    made.at(26.0, kinds.RegimesAnnounced(job=JobId("app3/0"), regimes=()))
    made.at(30.0, kinds.JobReported(job=JobId("app2/1"), iterations_done=200.0, rate=8.0))
    return made.scene("jobs that adapt", "2x4 V100 16cpu 64GB", 60.0, lease=6.0)


@functools.cache
def many(jobs: int = 10_000, apps: int = 100) -> Scene:
    """Return a scene with so many jobs that most of them wait."""
    made = _Script()
    sizes = [(1, 1), (2, 2), (4, 4), (1, 4), (8, 8)]
    for number in range(apps):
        made.app(f"app{number:03d}", 0.0, user=f"user{number % 10}")
        made.jobs(f"app{number:03d}", 0.0, (sizes[turn % len(sizes)] for turn in range(jobs // apps)), work=1e5)
    made.app("late", 1.0)
    made.jobs("late", 1.0, [(1, 1)])
    made.at(2.0, kinds.MachineLost(machine="m02"))
    return made.scene(f"{jobs} jobs", "8x8 V100 32cpu 128GB", 2.5)
