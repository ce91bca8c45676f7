"""One simulation of Synergy's reproduction (trace, cluster, order, scheme), and its results."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import value
from eunomia_testbed.reproduce.files import NeededFile, Reading
from eunomia_testbed.reproduce.paper import cell_key
from eunomia_testbed.reproduce.recipes import Recipe, run_profile
from eunomia_testbed.reproduce.rows import read_policies
from eunomia_testbed.reproduce.synergy.jobs import (
    drawn,
    of_philly,
    philly_files,
    profile_files,
    read_profiles,
    static,
    static_files,
)
from eunomia_testbed.reproduce.synergy.measuring import by_length, use
from eunomia_testbed.simulator import Keep, Reports, SimulationOptions, simulate_one
from eunomia_testbed.workload import Workload

VERSION = 3
"""Version of the stored results; results of other versions are not reused."""
SERVER_GPUS = 8
SERVER_GB = 500
ORDERS: Mapping[str, str] = {"fifo": "fifo", "srtf": "srtf", "las": "las", "ftf": "themis_rho"}
"""Valuations by their names in the paper."""
SCHEMES = read_policies(Path(__file__).parent)
"""Schemes by their names in the paper."""


@value
class SynergyCell:
    """One simulation in rounds of 300 s, in which changes have no cost, as in the authors' simulator."""

    scheme: str
    seed: int
    data: str
    """The folder with the authors' profiles and static trace."""
    order: str = "fifo"
    static: bool = False
    """Whether the jobs are those of the authors' static trace, instead of drawn ones."""
    gpus: int = 128
    cpus_per_gpu: float = 3.0
    jobs: int = 1000
    """Number of measured jobs."""
    warmup_jobs: int = 1000
    """Number of jobs before the measured ones."""
    jobs_per_hour: float = 9.0
    split: tuple[float, float, float] = (0.2, 0.7, 0.1)
    """Fractions of image, language and speech models."""
    multi: bool = False
    """Whether some jobs use more than one GPU."""
    times: float = 1.0
    """Factor on the durations of drawn jobs."""
    trace: str = ""
    """Philly's trace, a range of which provides the measured jobs; empty: they are drawn."""
    first: int = 0
    """Index of the range's first job, in order of submission."""

    @property
    def key(self) -> str:
        """Return the unique name of the cell, which does not depend on the paths of files."""
        bare = dataclasses.replace(self, data="", trace="philly" if self.trace else "")
        return cell_key(bare, VERSION, self.scheme, self.order, self.seed)


@value
class SynergyFigures:
    """The results of a simulation."""

    mean_jct_seconds: float
    """Mean JCT of the measured jobs."""
    p95_jct_seconds: float
    p99_jct_seconds: float
    makespan_seconds: float
    rounds: int
    short_jct_seconds: tuple[float, ...] = ()
    """Completion times of measured jobs that take under four hours at proportional shares, in order of submission."""
    long_jct_seconds: tuple[float, ...] = ()
    """Completion times of the longer measured jobs."""
    cpu_use: float = 0.0
    """Fraction of the CPUs in use by jobs, from the first measured arrival to the last."""
    gpu_use: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def hours(self) -> float:
        """Return the mean completion time in hours."""
        return self.mean_jct_seconds / 3600.0

    @property
    def makespan_hours(self) -> float:
        """Return the hours until the last job has finished."""
        return self.makespan_seconds / 3600.0


def files_of(cell: SynergyCell) -> tuple[NeededFile, ...]:
    """Return the third-party files that a cell reads."""
    if cell.static:
        return static_files(cell.data)
    return philly_files(cell.trace, cell.data) if cell.trace else profile_files(cell.data)


def readings_of(cell: SynergyCell) -> tuple[Reading, ...]:
    """Return the inputs that are read once, before the simulations that share them: profiles, and the cell's jobs."""
    return Reading(read=read_profiles, arguments=(cell.data,)), _jobs(cell)


def make_workload(cell: SynergyCell) -> Workload:
    """Read or draw the jobs of a cell, which do not depend on its scheme and order.

    Raises:
        InputError: the authors' files or Philly's trace are not at the grid's path, or have invalid content.
    """
    jobs = _jobs(cell)
    made: Workload = jobs.read(*jobs.arguments)
    return made


def _jobs(cell: SynergyCell) -> Reading:
    """Return a reading of a cell's jobs: the function that reads or draws them, with its arguments."""
    if cell.static:
        return Reading(read=static, arguments=(cell.data,))
    if cell.trace:
        jobs = range(cell.first, cell.first + cell.jobs)
        return Reading(read=of_philly, arguments=(cell.trace, cell.data, jobs, cell.split, cell.seed))
    gpu_split = (0.70, 0.10, 0.15, 0.05, 0.0) if cell.multi else (1.0, 0.0, 0.0, 0.0, 0.0)
    count = cell.warmup_jobs + cell.jobs
    drawing = (cell.data, count, cell.jobs_per_hour, cell.split, gpu_split, cell.times, cell.seed)
    return Reading(read=drawn, arguments=drawing)


def recipe_of(cell: SynergyCell) -> Recipe:
    """Return the preset of a cell, and the settings that override it."""
    scheme = SCHEMES[cell.scheme]
    settings = {"stages.valuation": ORDERS[cell.order], **scheme.settings}
    return Recipe(policy=cell.scheme, preset=scheme.preset, settings=settings)


def make_cluster(cell: SynergyCell) -> Cluster:
    """Return a cluster of servers with 8 GPUs and 500 GB each."""
    servers = cell.gpus // SERVER_GPUS
    return Cluster.parse(f"{servers}x{SERVER_GPUS} V100 {SERVER_GPUS * cell.cpus_per_gpu:g}cpu {SERVER_GB}GB")


def run_cell(cell: SynergyCell) -> SynergyFigures:
    """Simulate a cell and return its results."""
    workload = make_workload(cell)
    options = SimulationOptions(
        reports=Reports(know=("amounts",)),
        keep=Keep(rounds=False, leases=False, waits=False, queue=False, segments=True),
    )
    began = time.process_time()
    cluster, profiles = make_cluster(cell), read_profiles(cell.data)
    run = simulate_one(
        workload,
        cluster,
        run_profile(recipe_of(cell)),
        options=options,
        models=profiles,
        seed=cell.seed,
    )
    jct = run.finish_seconds - workload.jobs.arrival_seconds
    first = 0 if cell.static else cell.warmup_jobs
    measured = jct[first:]
    short, long = by_length(workload, jct, first)
    cpu_use, gpu_use = use(run, workload, cluster, profiles, first)
    return SynergyFigures(
        mean_jct_seconds=float(measured.mean()),
        p95_jct_seconds=float(np.percentile(measured, 95)),
        p99_jct_seconds=float(np.percentile(measured, 99)),
        makespan_seconds=float(np.nanmax(run.finish_seconds)),
        rounds=run.round_count,
        short_jct_seconds=tuple(short.tolist()),
        long_jct_seconds=tuple(long.tolist()),
        cpu_use=cpu_use,
        gpu_use=gpu_use,
        cpu_seconds=time.process_time() - began,
    )
