"""One simulation of Shockwave's reproduction (trace, cluster, policy), and its results."""

import dataclasses
import time
from functools import lru_cache
from pathlib import Path

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import value
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.metrics.judged import judge
from eunomia_testbed.performance import GavelThroughputs
from eunomia_testbed.reproduce.files import NeededFile, Reading, check_files
from eunomia_testbed.reproduce.paper import cell_key
from eunomia_testbed.reproduce.recipes import Recipe, run_profile
from eunomia_testbed.reproduce.rows import read_policies
from eunomia_testbed.simulator import Keep, Reports, SimulatedRun, SimulationOptions, simulate_one
from eunomia_testbed.simulator.gavel_rules import SHOCKWAVE, gavel_rules, under_rules
from eunomia_testbed.workload import Workload

VERSION = 3
"""Version of the stored results; results of other versions are not reused."""
PAPER_UNFAIR = 1.0
"""ρ above which a job counts as treated unfairly in the paper (§8.2); the authors' code uses ``UNFAIR_RHO``."""

POLICIES = read_policies(Path(__file__).parent)
"""Policies by their names in the paper."""
OURS = ("shockwave", "shockwave_linear", "index_rule")
"""Policies that have an option to know the contention of the trace."""
PLANNERS = ("shockwave", "shockwave_linear")


@value
class ShockwaveCell:
    """One simulation under the round rules of the authors' simulator."""

    policy: str
    seed: int
    throughputs: str
    trace_seed: int
    """Seed of the authors' generator; 25 gives the trace of Figure 7."""
    jobs: int = 120
    gpus: int = 32
    interarrival_seconds: float = 40.0
    """Mean seconds between arrivals; 0: all jobs arrive at once."""
    static: float = 0.0
    """Fraction of the jobs that keep their batch size; half of the others adapt by Accordion, half by GNS."""
    know: str = "measured"
    """Knowledge of rates, as in ``--know``; ``regimes``: in addition, the future regimes of jobs that adapt."""
    error: float = 0.0
    """Relative error of reported work and rates."""
    least_between_seconds: float = 1000.0
    """Least seconds between two optimizations, for policies that limit their rate; 0: they optimize at every event."""
    regularizer: float | None = None
    """Shockwave's regularizer λ; None: the preset's."""
    k: float | None = None
    """Exponent of Shockwave's weights; None: the preset's."""
    forecast: bool = True
    """Whether Shockwave forecasts regimes; otherwise it expects jobs to keep their last rate."""
    contention: bool = False
    """Whether our policies know the jobs of the whole trace per GPU, which is knowledge of the future."""
    until_seconds: float = float("inf")

    @property
    def key(self) -> str:
        """Return the unique name of the cell."""
        return cell_key(dataclasses.replace(self, throughputs=""), VERSION, self.policy, self.seed)


@value
class ShockwaveFigures:
    """The results of a simulation; tuples have an item for each job, in order of arrival."""

    rho: tuple[float, ...]
    """Static ρ: JCT / (exclusive time x jobs per GPU)."""
    jct_seconds: tuple[float, ...]
    adapts: tuple[bool, ...]
    """Whether the trace changes the job's batch size."""
    makespan_seconds: float
    restarts: int
    rounds: int
    plans: int
    """Number of plans that were made; 0 under other policies."""
    gaps: tuple[float, ...]
    """Relative optimality gap of each plan."""
    cpu_seconds: float = 0.0

    @property
    def worst_rho(self) -> float:
        """Return the greatest ρ of all jobs."""
        return max(self.rho)

    def part_above(self, limit: float) -> float:
        """Return the fraction of jobs with ρ above the limit."""
        return sum(rho > limit for rho in self.rho) / len(self.rho)

    @property
    def mean_jct(self) -> float:
        """Return the mean JCT in seconds."""
        return sum(self.jct_seconds) / len(self.jct_seconds)


def files_of(throughputs: str) -> tuple[NeededFile, ...]:
    """Return the third-party files that a simulation reads."""
    rule = "throughputs must be the file of measured rates that the traces need (--set throughputs=FILE)"
    return (NeededFile(path=throughputs, rule=rule),)


def readings_of(cell: ShockwaveCell) -> tuple[Reading, ...]:
    """Return the inputs that are read once, before the simulations that share them: the rates, and the cell's trace."""
    return (
        Reading(read=make_rates, arguments=(cell.throughputs,)),
        Reading(read=make_workload, arguments=(trace_of(cell),)),
    )


@lru_cache(maxsize=2)
def make_rates(throughputs: str) -> GavelThroughputs:
    """Read the measured rates, without the effect of placement.

    Raises:
        InputErrors: the throughputs are not at the grid's path.
    """
    check_files(files_of(throughputs), "reproduce shockwave")
    return GavelThroughputs.read(throughputs, placement=False)


def trace_of(cell: ShockwaveCell) -> ShockwaveCell:
    """Return the cell with only the fields that determine its trace, so that policies share a drawn trace."""
    return dataclasses.replace(
        cell,
        policy="",
        seed=0,
        gpus=0,
        know="measured",
        error=0.0,
        least_between_seconds=0.0,
        regularizer=None,
        k=None,
        forecast=True,
        contention=False,
        until_seconds=0.0,
    )


@lru_cache(maxsize=8)
def make_workload(cell: ShockwaveCell) -> Workload:
    """Draw the trace of a cell.

    Raises:
        InputErrors: the throughputs are not at the grid's path.
    """
    make_rates(cell.throughputs)
    dynamic = (1.0 - cell.static) / 2.0
    options = {
        "jobs": cell.jobs,
        "interarrival_seconds": cell.interarrival_seconds,
        "mode_split": (cell.static, dynamic, dynamic),
        "throughputs": cell.throughputs,
    }
    return generate_workload("shockwave", options, cell.trace_seed)


def recipe_of(cell: ShockwaveCell) -> Recipe:
    """Return the preset of a cell, the settings that override it, and what its policy knows beforehand."""
    policy = POLICIES[cell.policy]
    settings: dict[str, object] = dict(policy.settings)
    knows = ["the coming regimes of every job"] if cell.know == "regimes" else []
    if cell.know == "declared":
        knows.append("no rate but that at the start")
    if cell.policy in OURS and cell.contention:
        plugin = "index_rule" if cell.policy == "index_rule" else "shockwave_utility"
        settings[f"plugins.{plugin}.contention"] = max(1.0, cell.jobs / cell.gpus)
        knows.append("the contention of the whole trace")
    if cell.regularizer is not None:
        settings["plugins.shockwave.regularizer"] = cell.regularizer
    if cell.policy in PLANNERS and not cell.forecast:
        settings["stages.elasticity"] = "fixed"
    if cell.k is not None:
        settings["plugins.shockwave_utility.k"] = cell.k
    rules = "rounds of the authors' simulator"
    return Recipe(policy=cell.policy, preset=policy.preset, settings=settings, knows=tuple(knows), rules=rules)


def run_cell(cell: ShockwaveCell) -> ShockwaveFigures:
    """Simulate a cell and return its results."""
    workload = make_workload(trace_of(cell))
    cluster = Cluster.parse(f"{cell.gpus}x1 V100")
    rules = dataclasses.replace(SHOCKWAVE, least_between_seconds=cell.least_between_seconds)
    know = cell.know if cell.know in ("declared", "measured", "oracle") else (cell.know,)
    options = SimulationOptions(
        rules=gavel_rules(workload, cluster, make_rates(cell.throughputs), rules),
        reports=Reports(know=know, error=cell.error),  # type: ignore[arg-type]
        keep=Keep(rounds=False, leases=False, waits=False, queue=False, records=True),
        until=cell.until_seconds,
    )
    began = time.process_time()
    run = simulate_one(
        workload, cluster, under_rules(run_profile(recipe_of(cell)), rules), options=options, seed=cell.seed
    )
    spent = time.process_time() - began
    return dataclasses.replace(figures_of(run, workload, cluster), cpu_seconds=spent)


def figures_of(run: SimulatedRun, workload: Workload, cluster: Cluster) -> ShockwaveFigures:
    """Compute the results of a run."""
    jobs = judge(run, workload, cluster).jobs
    gaps = [gap for _, _, record in run.records.get("shockwave", ()) for gap in record.columns["gap"]]
    return ShockwaveFigures(
        rho=tuple(jobs.rho_static.tolist()),
        jct_seconds=tuple(jobs.jct_seconds.tolist()),
        adapts=tuple(len(workload.regimes.get(job, ())) > 1 for job in range(workload.size)),
        makespan_seconds=float(np.nanmax(run.finish_seconds, initial=0.0)),
        restarts=int(run.restarts.sum()),
        rounds=run.round_count,
        plans=len(gaps),
        gaps=tuple(gap for gap in gaps if isinstance(gap, float)),
    )
