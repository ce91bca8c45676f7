"""One simulation of Themis's reproduction (workload, cluster, policy), and its results."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from eunomia.model.cluster import Cluster, Machine
from eunomia.model.shapes import value
from eunomia.units import Reals
from eunomia_appmaster.tuner import demand
from eunomia_testbed.generators.themis import Themis2Options, ThemisOptions, generate_themis1, generate_themis2
from eunomia_testbed.metrics.judged import judge
from eunomia_testbed.metrics.serial import serial_seconds
from eunomia_testbed.reproduce.paper import cell_key
from eunomia_testbed.reproduce.recipes import Recipe
from eunomia_testbed.reproduce.rows import read_policies
from eunomia_testbed.reproduce.themis.clocked import clocked_profile
from eunomia_testbed.reproduce.themis.speeds import speeds_of
from eunomia_testbed.simulator import Costs, Keep, Reports, SimulatedRun, SimulationOptions, simulate_one
from eunomia_testbed.simulator.apps.searches import make_tuner
from eunomia_testbed.workload import AppColumns, JobColumns, SimulatedSearch, UserColumns, Workload

VERSION = 5
"""Version of the stored results; results of other versions are not reused."""
COSTS = Costs(start=35.0, checkpoint=7.5)
"""Costs of a change of GPUs (§6.2.3: 35 s at the median to start; 5 to 10 s for a checkpoint)."""
FORECAST_SECONDS = 120.0
"""Shortest time between two forecasts of an app, in seconds."""
HORIZON_SECONDS = 400 * 86_400.0
TESTBED_GPUS = 64


@value
class Cell:
    """The inputs of one simulation; fields with defaults are the same in most figures."""

    policy: str
    seed: int
    workload: str = "1"
    """``1`` or ``2``: Themis's workloads; ``flat``: apps whose time alone is about T_cluster, so that the policy
    determines their ρ; ``identical``: eight identical apps, for misreporting."""
    cluster: str = "testbed"
    """The cluster: ``testbed``, ``simulator`` or ``lying``."""
    shrink: int = 1
    """Divisor of the number of machines, for contention x1, x2, x4 (§6.2.2)."""
    apps: int = 20
    shorter: float = 3.0
    """Divisor of task lengths and of times between arrivals. The paper scales its trace down (§6.1) without stating the
    factor; but 35 s are 0.2 % of its median app's duration (§6.2.3), which is then 4.9 hours."""
    pooled_seconds: float = 60.0
    """Seconds during which free GPUs and arriving apps accumulate before a round, under every policy."""
    network_intensive: float | None = None
    slowdowns: str = "footnote"
    """Name of the slowdown model, a key of ``SLOWDOWNS``."""
    iterations_error: float = 0.05
    """Relative error of the reported iterations, drawn for each app; errors are on by default."""
    slowdown_error: float = 0.05
    """Relative error of the reported slowdown S, drawn for each app."""
    lie: float = 0.0
    """Relative amount by which the last app overstates its slowdown by distance (the last app, since the first ones win
    ties)."""
    work_lie: float = 0.0
    """Relative amount by which the last app overstates its iterations; negative: it understates them."""
    dense: bool = False
    """Whether the model of the eight identical apps is one that distance does not slow down."""
    standing_slowdown: bool = False
    """Whether Themis chooses bidders by a ρ that includes the reported S, as in the paper."""
    fairness_knob: float = 0.8
    lease_seconds: float = 600.0

    @property
    def key(self) -> str:
        """Return the unique name of the cell."""
        return cell_key(self, VERSION, self.policy, self.seed)


@value
class Figures:
    """The results of a simulation; tuples have an item for each app, unless stated otherwise."""

    rho: tuple[float, ...]
    jct_seconds: tuple[float, ...]
    gpu_seconds: tuple[float, ...]
    """GPU-seconds held by each app."""
    work_gpu_seconds: tuple[float, ...]
    """Work of each app's trials in GPU-seconds on one GPU, without slowdown."""
    placement_score: tuple[float, ...]
    job_gpus: tuple[int, ...]
    """Largest number of GPUs of each job."""
    makespan_seconds: float
    unfinished: int
    rounds: int
    faults: int
    decision_seconds: float
    """CPU seconds of the arbiter in all rounds."""
    cpu_seconds: float = 0.0
    """CPU seconds of the whole simulation."""
    arbiter_ms: tuple[float, ...] = ()
    """CPU milliseconds of the arbiter in each auction under Themis."""
    agent_ms: tuple[float, ...] = ()
    """CPU milliseconds for the bids of one app in each auction, the mean over the auction's bidders."""

    @property
    def worst_rho(self) -> float:
        """Return the largest ρ of all apps."""
        return max(self.rho)

    @property
    def gpu_hours(self) -> float:
        """Return the GPU-hours held by all apps."""
        return sum(self.gpu_seconds) / 3600.0


# --- clusters -------------------------------------------------------------------------------------------------------

_LAYOUTS: Mapping[str, tuple[tuple[int, int, int, int], ...]] = {
    # (machines, GPUs, racks, GPUs joined closely): §6.1, and footnote 6 with its 168 GPUs.
    "testbed": ((8, 2, 2, 2), (12, 4, 2, 4)),
    "simulator": ((16, 8, 4, 2), (6, 4, 4, 1), (16, 1, 4, 1)),
    "lying": ((1, 8, 1, 8), (28, 2, 1, 2)),
}
GPU_TYPE = "K80"
NETWORK_BOUND, DENSE = "VGG16", "WaveNet"
"""The models that distance slows down (``NETWORK_BOUND``) and does not slow down (``DENSE``)."""


def make_cluster(name: str, shrink: int = 1) -> Cluster:
    """Return one of the paper's clusters, with machines evenly distributed over racks.

    The number of racks is assumed; the paper does not state it.
    """
    machines = []
    for count, gpus, racks, island in _LAYOUTS[name]:
        for number in range(count // shrink):
            label = f"g{gpus}-{number:02d}"
            joined = None if island == gpus else island
            machines.append(Machine(name=label, gpu_type=GPU_TYPE, gpus=gpus, rack=f"r{number % racks}", island=joined))
    return Cluster.build(machines)


# --- policies -------------------------------------------------------------------------------------------------------

POLICIES = read_policies(Path(__file__).parent)
"""Policies by their names in the paper."""
ALONE = "alone"
"""The policy of a cell in which each app runs alone on the cluster."""
PACKING = "gandiva"
"""The policy for apps that run alone."""


def recipe_of(cell: Cell) -> Recipe:
    """Return the preset of a cell, and the settings that override it; apps run alone under ``PACKING``."""
    alone = cell.policy == ALONE
    policy = POLICIES[PACKING if alone else cell.policy]
    pooled = 0.0 if alone else cell.pooled_seconds
    own: dict[str, object] = {
        **policy.settings,
        "rounds.lease": f"{cell.lease_seconds:g}s",
        "rounds.settle": f"{pooled:g}s",
    }
    if cell.policy == "themis":
        own["plugins.themis.fairness_knob"] = cell.fairness_knob
        if cell.standing_slowdown:
            own["plugins.themis.standing_slowdown"] = True
    if cell.policy in ("optimus", "slaq"):
        own["rounds.every"] = f"{cell.lease_seconds:g}s"
    return Recipe(policy=cell.policy, preset=policy.preset, settings=own)


# --- workloads ------------------------------------------------------------------------------------------------------


FLAT: Mapping[str, object] = {
    "search": "none",
    "shortest": 1.0,
    "spread": 0.0,
    "most_gpus": 4,
    "least_task": "2h",
}
"""Options of the workload ``flat``: all jobs of an app can run at once on three quarters of the cluster, are equally
long, fit on one machine each, and last for several leases."""


def make_workload(cell: Cell) -> Workload:
    """Return the workload of a cell, with arrivals as dense as the paper's 85 apps in two weeks on 64 GPUs.

    On the larger cluster apps arrive more densely, so that the load per GPU is the same.
    """
    if cell.workload == "identical":
        return identical_apps(cell.seed, model=DENSE if cell.dense else NETWORK_BOUND)
    gpus = make_cluster(cell.cluster).gpus
    options: dict[str, object] = {
        "apps": cell.apps,
        "days": 14.0 * cell.apps / 85.0 * TESTBED_GPUS / gpus,
        "network_intensive": cell.network_intensive,
    }
    if cell.workload == "1":
        return shortened(generate_themis1(ThemisOptions.model_validate(options), cell.seed), cell.shorter)
    if cell.workload == "flat":
        options |= {**FLAT, "least_demand": 3 * gpus // 4, "most_demand": 3 * gpus // 4}
    return shortened(generate_themis2(Themis2Options.model_validate(options), cell.seed), cell.shorter)


def shortened(workload: Workload, factor: float) -> Workload:
    """Return the workload with iterations and times between arrivals shortened by a factor."""
    jobs, apps = workload.jobs, workload.apps
    return dataclasses.replace(
        workload,
        jobs=dataclasses.replace(
            jobs,
            arrival_seconds=jobs.arrival_seconds / factor,
            seconds_per_iteration=jobs.seconds_per_iteration / factor,
        ),
        apps=dataclasses.replace(apps, arrival_seconds=apps.arrival_seconds / factor),
    )


def identical_apps(seed: int, apps: int = 8, model: str = NETWORK_BOUND) -> Workload:
    """Return identical apps, each with two jobs of a model on up to eight GPUs (§6.3, truth-telling).

    Eight apps request twice the cluster's GPUs in total. Job lengths differ by up to a tenth, drawn by the seed, so
    that leases do not all end at the same time.
    """
    luck = np.random.default_rng([seed, 0x11E])
    ids = [f"app{number}" for number in range(apps)]
    jobs = 2 * apps
    return Workload(
        name=f"identical-seed{seed}",
        users=UserColumns(id=ids, weight=np.ones(apps)),
        apps=AppColumns(id=ids, user=np.arange(apps), weight=np.ones(apps), arrival_seconds=np.zeros(apps)),
        jobs=JobColumns(
            id=[f"{name}/{job}" for name in ids for job in (0, 1)],
            app=np.repeat(np.arange(apps, dtype=np.int64), 2),
            arrival_seconds=np.zeros(jobs),
            least=np.ones(jobs, dtype=np.int64),
            most=np.full(jobs, 8, dtype=np.int64),
            iterations=np.ceil(1000.0 * (1.0 + 0.1 * luck.random(jobs))),
            seconds_per_iteration=np.full(jobs, 18.0),
            model=np.zeros(jobs, dtype=np.int64),
        ),
        models=(model,),
        searches={row: SimulatedSearch(tuner="none") for row in range(apps)},
        source="eight apps alike",
    )


# --- a run ----------------------------------------------------------------------------------------------------------


def simulated(cell: Cell, workload: Workload) -> Figures:
    """Simulate a workload on the cluster and under the policy of a cell, and return the results."""
    began = time.process_time()
    cluster, liar = make_cluster(cell.cluster, cell.shrink), workload.apps.id[-1]
    reports = Reports(
        forecast_seconds=FORECAST_SECONDS,
        know="oracle",
        profiles=False,
        errors={"work": cell.iterations_error, "slowdowns": cell.slowdown_error},
        lies={liar: 1.0 + cell.work_lie} if cell.work_lie else {},
        far_lies={liar: 1.0 + cell.lie} if cell.lie else {},
    )
    options = SimulationOptions(
        costs=COSTS,
        reports=reports,
        keep=Keep(rounds=False, leases=False, waits=False, queue=False, records=False, segments=True),
        until=HORIZON_SECONDS,
    )
    speeds = speeds_of(cell.slowdowns)
    profile, times = clocked_profile(recipe_of(cell))
    run = simulate_one(workload, cluster, profile, options=options, models=speeds, seed=cell.seed)
    found = figures_of(run, workload, cluster, serial_seconds(workload, cluster, speeds))
    return dataclasses.replace(
        found,
        cpu_seconds=time.process_time() - began,
        arbiter_ms=tuple(round(each, 4) for each in times.arbiter_ms),
        agent_ms=tuple(round(each, 4) for each in times.agent_ms),
    )


def figures_of(run: SimulatedRun, workload: Workload, cluster: Cluster, serial: Reals | None) -> Figures:
    """Compute the results of a run by Themis's definitions.

    Args:
        run: the run of that workload on that cluster.
        workload: the workload with the apps.
        cluster: cluster of the run.
        serial: by job, seconds of its work on one GPU.
    """
    judged = judge(run, workload, cluster, serial)
    rows = workload.jobs.app
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.clip(np.nan_to_num(run.iterations_done / workload.jobs.iterations), 0.0, 1.0)
    work = np.bincount(rows, judged.jobs.serial_seconds * part, minlength=len(workload.apps.id))
    most = np.zeros(len(workload.apps.id), dtype=np.int64)
    np.maximum.at(most, rows, workload.jobs.most)
    apps = judged.apps
    widths = np.bincount(rows, workload.jobs.most, minlength=len(workload.apps.id))
    entitled = np.minimum(app_demands(workload), cluster.gpus) / np.minimum(widths, cluster.gpus)
    return Figures(
        rho=tuple((apps.rho * entitled).tolist()),
        jct_seconds=tuple(apps.jct_seconds.tolist()),
        gpu_seconds=tuple(apps.slot_seconds.tolist()),
        work_gpu_seconds=tuple(work.tolist()),
        placement_score=tuple(apps.placement_score.tolist()),
        job_gpus=tuple(most.tolist()),
        makespan_seconds=float(np.nanmax(run.app_finish_seconds)),
        unfinished=int(np.isnan(run.app_finish_seconds).sum()),
        rounds=run.round_count,
        faults=len(run.faults),
        decision_seconds=float(run.timings.get("step", 0.0)),
    )


def app_demands(workload: Workload) -> Reals:
    """Return each app's app_demand_max (equation 2): the most GPUs that its jobs can use in any phase of its search."""
    jobs = workload.jobs
    demands = np.bincount(jobs.app, jobs.most, minlength=len(workload.apps.id)).astype(float)
    for app, search in workload.searches.items():
        rows = np.flatnonzero(jobs.app == app)
        gangs = list(zip(jobs.least[rows].tolist(), jobs.most[rows].tolist(), strict=True))
        tuner = make_tuner(search, gangs, jobs.iterations[rows].tolist(), 0)
        demands[app] = demand(tuner.jobs_in_phase(phase, {}) for phase in range(tuner.num_phases()))
    return demands
