"""One simulation of AFS's reproduction (cluster of the trace, policy, costs), and its metrics."""

import dataclasses
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import value
from eunomia.units import Reals
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.metrics.frames import frames_of
from eunomia_testbed.metrics.serial import serial_seconds
from eunomia_testbed.performance import AfsScaling, read_performance
from eunomia_testbed.reproduce.files import NeededFile, Reading, check_files
from eunomia_testbed.reproduce.paper import cell_key
from eunomia_testbed.reproduce.recipes import Recipe, run_profile
from eunomia_testbed.reproduce.rows import read_policies
from eunomia_testbed.results.counting import time_mean
from eunomia_testbed.simulator import Costs, Keep, Reports, SimulatedRun, SimulationOptions, simulate_one
from eunomia_testbed.traces import read_trace
from eunomia_testbed.workload import Workload

VERSION = 2
"""Version of the stored results; results of other versions are not reused."""
QUARTERS = 4
CLUSTER = "16x4 V100"
"""The cluster of §5.1: 64 GPUs, four per machine."""

ASKED, ASKED_UP = "asked", "asked to most"
"""Job sizes: the GPUs that the trace requests, or any number from these to the most that the model can use."""


POLICIES = read_policies(Path(__file__).parent)
"""Policies by their names in the paper."""
ELASTIC = ("max_min", "max_min_turns", "optimus", "afs_l", "afs_p", "afs_s")
"""Policies that set the sizes of jobs, so that ``network_packing`` can round them."""


@value
class AfsCell:
    """The inputs of one simulation: policy, cluster of the trace, seed of the models, files and costs."""

    policy: str
    seed: int
    """Seed that draws the jobs' models; 0: the models that the authors drew."""
    cluster: str
    trace: str
    scaling: str
    start_seconds: float = 0.0
    """Seconds that each start and restart takes."""
    packing: bool = False
    """Whether ``network_packing`` rounds the job sizes of an elastic policy."""

    @property
    def key(self) -> str:
        """Return the unique name of the cell."""
        bare = dataclasses.replace(self, trace="", scaling="")
        return cell_key(bare, VERSION, self.policy, self.cluster, self.seed)


@value
class AfsFigures:
    """The results of a simulation."""

    mean_jct_seconds: float
    p99_jct_seconds: float
    makespan_seconds: float
    restarts: int
    resizes: int
    """Number of changes in the GPUs of running jobs."""
    jct_by_length_seconds: tuple[float, ...]
    """Mean JCT in each quarter of the jobs, from the least work (in seconds on one GPU) to the most."""
    queue: float
    """Queue length (QL), the mean over time of the number of waiting jobs."""
    efficiency: float
    """Cluster efficiency (CE), the mean over time."""
    blocking: float
    """Blocking index (BI), the mean over time."""
    cpu_seconds: float = 0.0


def files_of(trace: str, scaling: str) -> tuple[NeededFile, ...]:
    """Return the third-party files that a simulation reads."""
    return (
        NeededFile(path=trace, rule="trace must be the file of Philly's trace with models (--set trace=FILE)"),
        NeededFile(path=scaling, rule="scaling must be the file of the authors' seconds per step (--set scaling=FILE)"),
    )


def readings_of(cell: AfsCell) -> tuple[Reading, ...]:
    """Return the inputs to read before a simulation: the scaling curves, the trace's rows, and the cell's jobs."""
    jobs = (cell.trace, cell.scaling, cell.cluster, cell.seed, POLICIES[cell.policy].sizes)
    return (
        Reading(read=AfsScaling.read, arguments=(cell.scaling,)),
        Reading(read=read_strictly, arguments=(cell.trace, cell.seed == 0)),
        Reading(read=make_workload, arguments=jobs),
    )


def read_strictly(trace: str, told_models: bool) -> Workload:
    """Read the whole trace; a row that the generator would drop is an error, since the simulation would lack its job.

    Args:
        trace: path of the trace.
        told_models: whether jobs have the models that the trace's authors drew.

    Raises:
        InputError: a line has invalid content.
    """
    return read_trace(trace, drawn_models=told_models, strict=True)


@lru_cache(maxsize=4)
def make_workload(trace: str, scaling: str, cluster: str, seed: int, sizes: str) -> Workload:
    """Return the jobs of a virtual cluster of the trace as a workload.

    Raises:
        InputErrors: the trace or the curves are not at the grid's path.
    """
    check_files(files_of(trace, scaling), "reproduce afs")
    options = {"trace": trace, "cluster": cluster, "scaling": scaling, "told_models": seed == 0}
    made = generate_workload("afs", {**options, "elastic": sizes != ASKED}, seed)
    if sizes != ASKED_UP:
        return made
    asked = generate_workload("afs", {**options, "elastic": False}, seed).jobs.most
    jobs = dataclasses.replace(made.jobs, least=asked, most=np.maximum(asked, made.jobs.most))
    return dataclasses.replace(made, jobs=jobs)


def recipe_of(cell: AfsCell) -> Recipe:
    """Return the preset of a cell, and the settings that override it."""
    policy = POLICIES[cell.policy]
    packing = {"stages.refiners": ["network_packing"]} if cell.packing else {}
    return Recipe(policy=cell.policy, preset=policy.preset, settings={**policy.settings, **packing})


def run_cell(cell: AfsCell) -> AfsFigures:
    """Simulate a cell and return its results."""
    workload = make_workload(cell.trace, cell.scaling, cell.cluster, cell.seed, POLICIES[cell.policy].sizes)
    options = SimulationOptions(
        reports=Reports(know=("sizes", "types")),
        costs=Costs(start=cell.start_seconds),
        keep=Keep(rounds=False, records=False, timings=False),
    )
    began = time.process_time()
    models, cluster = read_performance(cell.scaling), Cluster.parse(CLUSTER)
    run = simulate_one(workload, cluster, run_profile(recipe_of(cell)), options=options, models=models, seed=cell.seed)
    serial = serial_seconds(workload, cluster, models)
    queue = frames_of(run, workload, cluster, serial_seconds=serial).tables["queue"]
    length = workload.jobs.iterations if serial is None else serial
    found = figures_of(run, workload, queue, length)
    return dataclasses.replace(found, cpu_seconds=time.process_time() - began)


def figures_of(run: SimulatedRun, workload: Workload, queue: pl.DataFrame, length: Reals) -> AfsFigures:
    """Compute the results of a run from its table ``queue``; ``length`` is [job] work, by which quarters are formed."""
    jct = run.finish_seconds - workload.jobs.arrival_seconds
    by_length = np.array_split(jct[np.argsort(length, kind="stable")], QUARTERS)
    return AfsFigures(
        mean_jct_seconds=float(np.mean(jct)),
        p99_jct_seconds=float(np.quantile(jct, 0.99)),
        makespan_seconds=float(np.nanmax(run.finish_seconds, initial=0.0)),
        restarts=int(run.restarts.sum()),
        resizes=int(run.resizes.sum()),
        jct_by_length_seconds=tuple(float(np.mean(part)) for part in by_length),
        queue=time_mean(queue, "waiting_jobs", run.end_seconds) or 0.0,
        efficiency=time_mean(queue, "efficiency", run.end_seconds) or 0.0,
        blocking=time_mean(queue, "blocking_index", run.end_seconds) or 0.0,
    )
