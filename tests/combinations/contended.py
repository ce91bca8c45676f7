"""A small crowded world that distinguishes policies: its jobs differ in every property that a policy reads."""

import math

from eunomia.contract.events import AppArrived, Event, ForecastReported, JobAdded, KindProfiled, RateMeasured
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.model.kind_profiles import KnownRate
from eunomia.testing.scenes import Scene
from eunomia.units import AppId, JobId, Locality, UserId

ONE_TYPE = "4x4 V100 16cpu 64GB"
TWO_TYPES = "2x4 V100 16cpu 64GB, 2x4 P100 16cpu 64GB"
LEASE_SECONDS = 7.0

_APPS: tuple[tuple[float, str, str, float, bool], ...] = (
    (0.0, "ann", "u1", 1.0, False),
    (0.5, "bob", "u2", 3.0, False),
    (1.0, "cat", "u1", 0.5, True),
    (1.5, "dan", "u3", 1.0, False),
    (9.0, "eve", "u2", 2.0, False),
)
"""Arrival, app, user, weight, and whether the app's tuner divides its GPUs among its jobs."""
_JOBS: tuple[tuple[str, int, int, float, float], ...] = (
    ("ann", 2, 6, 60.0, 24.0),
    ("ann", 3, 3, 90.0, 6.0),
    ("ann", 1, 3, 20.0, 2.0),
    ("bob", 1, 8, 100.0, 16.0),
    ("bob", 3, 3, 33.0, 4.0),
    ("bob", 2, 2, 15.0, 1.0),
    ("cat", 1, 4, 30.0, 2.0),
    ("cat", 2, 2, 25.0, 3.0),
    ("cat", 1, 2, 12.0, 1.0),
    ("dan", 6, 8, 150.0, 30.0),
    ("dan", 2, 4, 26.0, 6.0),
    ("dan", 1, 1, 9.0, 9.0),
    ("eve", 1, 3, 8.0, 2.0),
    ("eve", 5, 6, 36.0, 10.0),
    ("eve", 2, 3, 14.0, 2.0),
)
"""App, least and most GPUs, seconds of work on one GPU, CPUs of the whole gang."""
_SCALING = {1: 1.0, 2: 1.8, 3: 1.7, 4: 1.7, 6: 1.6, 8: 1.5}
"""As measured of some jobs: beyond two GPUs it is no faster."""
_MEASURED = ("ann/0", "bob/0", "cat/0", "dan/1", "eve/0")
_SENSITIVE = {"ann/1": 2.0, "ann/2": 8.0, "bob/1": 6.0, "cat/1": 6.0, "dan/2": 9.0, "eve/1": 3.0}
"""By job that asks for no CPUs: CPUs a GPU beyond which its kind is no faster, as is known of the kind."""


def contended(cluster: str = ONE_TYPE, *, until: float = 30.0) -> Scene:
    """Return a scene with more jobs than fit, which differ in every property that a policy reads.

    Args:
        cluster: its short form.
        until: end of the run in seconds.
    """
    script: list[tuple[float, Event]] = []
    work: dict[JobId, float] = {}
    for time, app, user, weight, divides in _APPS:
        arrived = AppArrived(app=AppId(app), user=UserId(user), weight=weight, user_weight=weight, divides=divides)
        script.append((time, arrived))
        jobs = [job for job in _JOBS if job[0] == app]
        for number, (_, least, most, seconds, cpus) in enumerate(jobs):
            name = JobId(f"{app}/{number}")
            work[name] = seconds
            script.append((time, _added(name, least, most, seconds, cpus)))
        script.append((time, ForecastReported(app=AppId(app), forecast=_forecast(jobs))))
    gpu_type = cluster.split()[1]
    script += [(0.0, KindProfiled(kind=name, rates=_rates(name, gpu_type))) for name in _SENSITIVE]
    for measured in _MEASURED:
        arrived_at = next(time for time, app, *_ in _APPS if measured.startswith(app))
        script += [(arrived_at + 0.1, _measured(JobId(measured), *point, gpu_type)) for point in _SCALING.items()]
    title = "two crowded GPU types" if "," in cluster else "a crowd"
    return Scene(name=title, cluster=cluster, script=tuple(script), work=work, until=until, lease=LEASE_SECONDS)


def _name(number: int) -> str:
    """Return the name of a job by its row in the table."""
    app = _JOBS[number][0]
    return f"{app}/{[job[0] for job in _JOBS[:number]].count(app)}"


def _added(name: JobId, least: int, most: int, seconds: float, cpus: float) -> JobAdded:
    return JobAdded(
        job=name,
        app=AppId(name.partition("/")[0]),
        least=least,
        most=most,
        iterations=10.0 * seconds,
        seconds_per_iteration=0.1,
        kind=name,
        cpus_per_gpu=math.nan if name in _SENSITIVE else cpus / most,
        memory_gib_per_gpu=math.nan if name in _SENSITIVE else 2.0 * cpus / most,
        batch_size=32.0,
    )


def _rates(name: str, gpu_type: str) -> tuple[KnownRate, ...]:
    """Return rates of a kind by CPUs at every size of its job."""
    least, most = next(job[1:3] for number, job in enumerate(_JOBS) if _name(number) == name)
    enough = _SENSITIVE[name]
    return tuple(
        KnownRate(
            gpus=gpus,
            gpu_type=gpu_type,
            locality=Locality.MACHINE,
            rate=10.0 * gpus * min(1.0, cpus / enough),
            cpus=cpus * gpus,
            memory_gib=2.0 * cpus * gpus,
        )
        for gpus in range(least, most + 1)
        for cpus in (1.0, 2.0, 3.0, 4.0, 6.0, 9.0)
    )


def _forecast(jobs: list[tuple[str, int, int, float, float]]) -> Forecast:
    jobs_reported = tuple(
        JobForecast(iterations_left=10.0 * seconds, seconds_per_iteration=0.1, least=least, most=most)
        for _, least, most, seconds, _ in jobs
    )
    most = sum(job.most for job in jobs_reported)
    return Forecast(phases=(Phase(jobs=jobs_reported),), total_gpu_seconds=sum(job[3] for job in jobs), most=most)


def _measured(job: JobId, gpus: int, speed: float, gpu_type: str) -> RateMeasured:
    return RateMeasured(job=job, gpus=gpus, locality=Locality.MACHINE, rate=10.0 * speed, gpu_type=gpu_type)
