"""Themis's workloads 1 and 2 (NSDI'20, §6.1): hyperparameter searches, with the distributions of Figures 2, 4 and 8.

The durations of a job's tasks are drawn from Figure 4 and summed to the app's GPU time. The jobs of an app are variants
of one model, so their lengths vary around a typical length that is drawn for each app.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals, Seconds
from eunomia_testbed.generators.drawing import picked, poisson_arrivals, stream
from eunomia_testbed.generators.options import Count, Duration, GeneratorOptions, Share
from eunomia_testbed.generators.searches import Rungs, draw_curves, halving_iterations
from eunomia_testbed.generators.themis_facts import (
    APPS,
    DAYS,
    GPUS_PER_JOB,
    JOBS_PER_APP,
    MODELS,
    NETWORK_INTENSIVE_MODELS,
    SHARES,
    TASK_SECONDS,
)
from eunomia_testbed.workload import AppColumns, JobColumns, SimulatedSearch, UserColumns, Workload

SearchKind = Literal["none", "successive_halving", "curve_stopping"]
DAY_SECONDS: Final = 86_400.0


class ThemisOptions(GeneratorOptions):
    """Options of ``themis1`` and, unless ``Themis2Options`` overrides them, of ``themis2``."""

    apps: Count = APPS
    """Number of apps."""
    days: float = Field(default=DAYS, gt=0.0, le=36_500.0)
    """Mean number of days until all apps have arrived, as a Poisson process; the paper gives no arrival times."""
    contention: float = Field(default=1.0, gt=0.0, le=1000.0)
    """Divisor of the times between arrivals; the paper uses 1, 2 and 4."""
    network_intensive: Share | None = None
    """Fraction of the apps that are network-intensive; not given: that of Table 4's models (0.68)."""
    search: SearchKind = "none"
    """How an app decides which of its jobs continue."""
    shortest: float = Field(default=0.5, gt=0.0, le=1.0)
    """Shortest job of an app as a fraction of the longest, since the trace has jobs that Hyperdrive stopped early; with
    a search, the fraction refers to what a job's tasks add to the app's budget."""
    least_task: Duration = Seconds(0.0)
    """Lower bound on the typical task length of an app."""
    most_gpus: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Upper bound on the GPUs that a job can use; None: only the distribution of Figure 8 limits them."""
    most_demand: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Upper bound on the GPUs that the jobs of an app can use together; it reduces the number of jobs."""
    least_demand: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Lower bound on the GPUs that the jobs of an app can use together; it raises the number of jobs, up to
    ``most_demand``."""
    spread: Share = 0.2
    """Largest relative deviation of the time per iteration within an app; §4.3.3 has 80 to 120 s."""
    iterations: int = Field(default=1000, ge=200, le=10_000_000)
    """Iterations of the longest job of an app."""
    reduction_factor: int = Field(default=2, ge=2, le=64)
    """Reduction factor of successive halving: one in this many trials continues."""
    rungs: Rungs = "equal_budget"
    """Rungs of successive halving: every phase has the same budget (§4.3.3), or ends eta times later than the one
    before."""
    demand: Literal["full", "growing"] = "growing"
    """How many GPUs a job can use under successive halving, with any policy: its most from the beginning (§4.3.3), or
    in each phase reduction_factor times as many as in the one before (§4.3.2)."""
    elastic: bool = True
    """Whether a job also runs on fewer GPUs than its most: min(|G|, job_demand_max) in §4.3.1."""


class Themis2Options(ThemisOptions):
    """Options of ``themis2``."""

    search: SearchKind = "successive_halving"
    """How an app decides which of its jobs continue; workload 2 follows successive halving (§6.1)."""


@builds
class _App:
    """One drawn app; values that differ between its jobs are arrays by job."""

    gpus: int
    curves: Reals
    iterations: Ints
    """Total work of each job in iterations; a search may end the job earlier."""
    seconds_per_iteration: Reals
    """Seconds per iteration of each job, on all GPUs that it can use."""


def generate_themis1(options: ThemisOptions, seed: int) -> Workload:
    """Draw workload 1: few GPUs per job, many jobs per app, with job lengths as in the trace.

    Raises:
        InputError: the seed is negative.
    """
    return _generate(1, options, seed)


def generate_themis2(options: Themis2Options, seed: int) -> Workload:
    """Draw workload 2: the arrivals of workload 1 with that seed, fewer jobs, more GPUs per job, successive halving.

    Raises:
        InputError: the seed is negative.
    """
    return _generate(2, options, seed)


def _generate(number: int, options: ThemisOptions, seed: int) -> Workload:
    count = options.apps
    mean = options.days * DAY_SECONDS / count / options.contention
    arrivals = poisson_arrivals(stream(seed, "themis arrivals"), count, mean)
    jobs = _rounded_up(JOBS_PER_APP[number].at(stream(seed, "jobs").random(count)))
    gpus = _rounded_up(GPUS_PER_JOB[number].at(stream(seed, "gpus").random(count)))
    gpus = np.minimum(gpus, options.most_gpus or gpus)
    jobs = np.maximum(jobs, -(-options.least_demand // gpus))
    jobs = np.minimum(jobs, np.maximum(1, (options.most_demand or np.iinfo(np.int64).max) // gpus))
    tasks = np.maximum(TASK_SECONDS.at(stream(seed, "themis tasks").random(count)), options.least_task)
    models = draw_models(options.network_intensive, count, seed)
    inner = stream(seed, "within apps")
    apps = [_app(options, inner, int(jobs[row]), int(gpus[row]), float(tasks[row])) for row in range(count)]
    return _laid_out(f"themis{number}-{count}-seed{seed}", options, arrivals, apps, models)


def draw_models(network_intensive: float | None, count: int, seed: int) -> Ints:
    """Draw ``count`` model indices by Table 4's proportions, or with a given fraction of network-intensive ones."""
    draws = stream(seed, "models")
    if network_intensive is None:
        return picked(draws, count, SHARES)
    intensive = np.array([model in NETWORK_INTENSIVE_MODELS for model in MODELS])
    by_network = [picked(draws, count, np.where(intensive == wanted, SHARES, 0.0).tolist()) for wanted in (True, False)]
    chosen = stream(seed, "network").random(count) < network_intensive
    return np.where(chosen, by_network[0], by_network[1])


def _app(options: ThemisOptions, draws: np.random.Generator, jobs: int, gpus: int, task_seconds: float) -> _App:
    """Draw an app's jobs, which under its search take the GPU time of all its tasks in total.

    Args:
        options: options of the workload.
        draws: random numbers of the app.
        jobs: number of jobs.
        gpus: number of tasks of each job, one per GPU.
        task_seconds: typical GPU time of a task, in seconds, roughly the app's median.
    """
    pace = 1.0 + options.spread * (2.0 * draws.random(jobs) - 1.0)
    curves = draw_curves(draws, jobs)
    lengths = options.shortest + (1.0 - options.shortest) * draws.random(jobs)
    lengths *= 2.0 / (1.0 + options.shortest) if jobs > 1 else 1.0 / lengths
    whole = np.full(jobs, options.iterations, dtype=np.int64)
    if options.search == "none" or jobs == 1:
        needed = lengths / pace
        whole = run = np.ceil(options.iterations * needed / needed.max()).astype(np.int64)
    elif options.search == "successive_halving":
        run = halving_iterations(curves, options.iterations, options.reduction_factor, options.rungs)
    else:
        run = whole
    seconds = task_seconds * float(lengths.sum()) / float((pace * run).sum()) * pace
    return _App(gpus=gpus, curves=curves, iterations=whole, seconds_per_iteration=seconds)


def _laid_out(name: str, options: ThemisOptions, arrivals: Reals, apps: Sequence[_App], models: Ints) -> Workload:
    count = len(apps)
    sizes = np.array([app.iterations.size for app in apps], dtype=np.int64)
    ids = [f"app{row:0{len(str(count - 1))}d}" for row in range(count)]
    most = np.repeat(np.array([app.gpus for app in apps], dtype=np.int64), sizes)
    columns = JobColumns(
        id=[f"{ids[row]}/{job}" for row in range(count) for job in range(int(sizes[row]))],
        app=np.repeat(np.arange(count, dtype=np.int64), sizes),
        arrival_seconds=np.repeat(arrivals, sizes),
        least=np.ones_like(most) if options.elastic else most.copy(),
        most=most,
        iterations=np.concatenate([app.iterations for app in apps]).astype(float),
        seconds_per_iteration=np.concatenate([app.seconds_per_iteration for app in apps]),
        model=np.repeat(models, sizes),
    )
    return Workload(
        name=name,
        users=UserColumns(id=ids, weight=np.ones(count)),
        apps=AppColumns(id=ids, user=np.arange(count), weight=np.ones(count), arrival_seconds=arrivals),
        jobs=columns,
        models=MODELS,
        searches={row: _search(options, app) for row, app in enumerate(apps)},
        source="generated as Themis' workloads",
    )


def _search(options: ThemisOptions, app: _App) -> SimulatedSearch:
    """Return the simulated search of an app; without a tuner it still has loss curves, which SLAQ uses."""
    kind = options.search if app.iterations.size > 1 else "none"
    details: dict[str, object] = {}
    if kind == "successive_halving":
        details = {
            "reduction_factor": options.reduction_factor,
            "rungs": options.rungs,
            "demand": options.demand,
        }
    curves = tuple((float(a), float(b), float(c)) for a, b, c in app.curves)
    return SimulatedSearch(tuner=kind, options=details, curves=curves, every=max(1, options.iterations // 100))


def _rounded_up(amount: Reals) -> Ints:
    """Round amounts up to whole numbers, ignoring rounding noise.

    Rounding up keeps the distribution's CDF at or below the curve at each of its points.
    """
    return np.ceil(amount - 1e-9).astype(np.int64)
