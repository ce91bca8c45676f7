"""Optimistic profiling: points and minutes against the full grid, error of the matrices, and JCT under Tune.

``python tests/benchmarks/bench_optimistic.py DATA`` with the folder of Synergy's profiles and static trace. First each
of ten models is measured alone on one server of 8 GPUs, 24 CPUs and 500 GB, one GPU each; then the 100 jobs of the
static trace run on four servers under Tune with profiled, declared and wrong matrices. A start costs 10 s; seeds 0 to 2
of the errors. Prints CPU time; asserts nothing.

The tables say neither data sets nor the storage bandwidth: ImageNet has 150 GB and 1,281,167 samples, LibriSpeech 60 GB
and 281,241; for Free Music 250 GB and 1.6 million samples are taken, from the steps of m5's table. 200 MB/s follows
from alexnet's rate at 62.5 GB. Image and speech models need 62.5 GB for each process (below, the tables have one tenth
of the rate for any CPUs), language models 20 GB (§2).
"""

import argparse
import dataclasses
import itertools
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from eunomia import Feature
from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.events import KindProfiled
from eunomia.model.cluster import Cluster
from eunomia.model.kind_profiles import KnownRate
from eunomia.platform.profiles import Profile
from eunomia.testing.builders import World
from eunomia_plugins.synergy.matrices import Matrix
from eunomia_plugins.synergy.optimistic import Optimistic, OptimisticOptions
from eunomia_plugins.synergy.storage import DataSet
from eunomia_testbed.generators.derived import TASKS
from eunomia_testbed.performance import SynergyProfiles
from eunomia_testbed.reproduce.synergy.jobs import STATIC
from eunomia_testbed.simulator import Costs, Engine, Reports, SimulationOptions, SimulationState, assemble
from eunomia_testbed.simulator.apps.amount_reports import AmountReports
from eunomia_testbed.traces import read_trace
from eunomia_testbed.workload import Workload

SERVER = "8 V100 24cpu 500GB"
IMAGENET = {"size": "150GB", "samples": 1_281_167, "process": "62.5GB"}
TEXT = {"size": "5GB", "samples": 1_000_000, "process": "20GB"}
DATA_SETS = {
    **dict.fromkeys(TASKS["image"], IMAGENET),
    **dict.fromkeys(TASKS["language"], TEXT),
    "m5": {"size": "250GB", "samples": 1_600_000, "process": "62.5GB"},
    "deepspeech": {"size": "60GB", "samples": 281_241, "process": "62.5GB"},
}
OPTIMISTIC = {
    "stages.elasticity": "optimistic",
    "plugins.optimistic.data_sets": DATA_SETS,
    "plugins.optimistic.bandwidth": "200MB/s",
}
COSTS = Costs(start=10.0)
FULL_GRID = 24 * 10
"""CPUs times steps of 50 GB of one server: the paper's four hours, a minute each."""


class Watch:
    """Counts the probes of a run and the time between each and its end; keeps the rates by kind."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.last = 0.0
        self.profiles: dict[str, tuple[KnownRate, ...]] = {}
        self._began: dict[int, float] = {}

    def stepped(self, sim: SimulationState, decision: Decision) -> None:
        state = sim.arbiter.state
        for order in (*decision.transitions, *decision.orders):
            if order.kind is not TransitionKind.PROBE:
                continue
            if order.probe is not None and order.probe.iterations:
                self._began[int(order.lease)] = float(decision.now)
            elif int(order.lease) in self._began:
                self.seconds.append(float(decision.now) - self._began.pop(int(order.lease)))
                self.last = float(decision.now)
        names = {row: name for name, row in state.names.kinds.items()}
        self.profiles = {names[kind]: rates for kind, rates in state.reports.profiles.items() if kind in names}

    def ended(self, sim: SimulationState) -> None:
        pass


class Off:
    """Declares rates by CPUs and memory that are off, each by a factor of its own; a matrix is kept monotone."""

    def __init__(self, true: AmountReports, off: float, seed: int) -> None:
        self._true, self._off, self._seed = true, off, seed
        self.are_due = True

    def of(self, job: int) -> tuple[KindProfiled, ...]:
        """As ``AmountReports`` does."""
        return tuple(dataclasses.replace(one, rates=self._wrong(one)) for one in self._true.of(job))

    def _wrong(self, kind: KindProfiled) -> tuple[KnownRate, ...]:
        cpus, memory = (sorted({getattr(rate, name) for rate in kind.rates}) for name in ("cpus", "memory_gib"))
        luck = np.random.default_rng([self._seed, *kind.kind.encode()])
        table = np.zeros((len(cpus), len(memory)))
        for rate in kind.rates:
            table[cpus.index(rate.cpus), memory.index(rate.memory_gib)] = rate.rate
        table *= luck.uniform(1.0 - self._off, 1.0 + self._off, table.shape)
        table = np.maximum.accumulate(np.maximum.accumulate(table, axis=0), axis=1)
        return tuple(
            dataclasses.replace(rate, rate=float(table[cpus.index(rate.cpus), memory.index(rate.memory_gib)]))
            for rate in kind.rates
        )


class Found(NamedTuple):
    """What measuring one model came to."""

    points: int
    measuring: float
    """Minutes of the probes, starts among them."""
    minutes: float
    """From the job's arrival to the end of the last probe."""
    errors: list[float]
    below: list[float]
    """Errors with less memory than the processes need."""


def measured_alone(speeds: SynergyProfiles, model: str) -> Found:
    """Measure one job of a model on an empty server, and compare its matrix with the authors' grid."""
    demand, watch = speeds.demand(model), Watch()
    work = Workload.single_jobs(
        model,
        ids=["job"],
        arrival_seconds=np.zeros(1),
        gpus=np.ones(1, np.int64),
        iterations=np.array([36000.0 / demand.seconds_per_iteration]),
        seconds_per_iteration=np.array([demand.seconds_per_iteration]),
        models=[model],
        batch_size=np.array([demand.batch_size]),
    )
    engine = made(work, Cluster.parse(f"1x{SERVER}"), OPTIMISTIC, Reports(), speeds, watch)
    engine.run()
    world = World(f"1x{SERVER}").needs(Feature.CPU_POINTS)
    world.job("a/0", gpus=1, kind=model, batch_size=demand.batch_size)
    for rate in watch.profiles[model]:
        world.measures("a/0", 1, rate.rate, cpus=rate.cpus, memory_gib=rate.memory_gib)
    stage = Optimistic(OptimisticOptions(data_sets=DATA_SETS, bandwidth="200MB/s"))  # type: ignore[arg-type]
    matrix = Matrix.of(stage.eunomia_elasticity(world.snapshot()), world.row("a/0"), 1, 0)
    if matrix is None:
        raise RuntimeError(f"{model} was not measured")
    need = DataSet.model_validate(DATA_SETS[model]).process
    errors: tuple[list[float], list[float]] = ([], [])
    for cpus, memory in itertools.product(*(column.tolist() for column in speeds.amounts(model))):
        true = speeds.relative(model, cpus, memory) / demand.seconds_per_iteration
        errors[memory < need - 1e-6].append(abs(matrix.at(cpus, memory) / true - 1.0))
    return Found(len(watch.seconds), sum(watch.seconds) / 60.0, watch.last / 60.0, *errors)


def made(
    work: Workload,
    cluster: Cluster,
    settings: Mapping[str, object],
    reports: Reports,
    speeds: SynergyProfiles,
    watch: Watch,
) -> Engine:
    """A simulation under Tune."""
    profile = Profile.load("synergy", settings=dict(settings))
    options = SimulationOptions(reports=reports, costs=COSTS)
    return assemble(work, cluster, profile, options, models=speeds, observers=[watch])


def static(data: Path, speeds: SynergyProfiles) -> None:
    """Print a line for each source of the matrices."""
    declared, known = ("declared", {}, 0.0), Reports(know=("amounts",))
    cases = [
        ("none: proportional shares", {}, 0.0, 0, Reports()),
        (*declared, 0, known),
        ("profiled, kinds wait", OPTIMISTIC, 0.0, 0, Reports()),
        ("profiled, kinds run", {**OPTIMISTIC, "plugins.optimistic.until_profiled": "assumed"}, 0.0, 0, Reports()),
        *((f"wrong by up to 30 %, seed {seed}", {}, 0.3, seed, known) for seed in range(3)),
    ]
    for name, settings, off, seed, reports in cases:
        began, watch, work = time.process_time(), Watch(), read_trace(data / STATIC, strict=True)
        engine = made(work, Cluster.parse(f"4x{SERVER}"), settings, reports, speeds, watch)
        if off:
            engine.arrivals.kinds = Off(engine.arrivals.kinds, off, seed)
        run = engine.run()
        jct = float(np.mean(run.finish_seconds - work.jobs.arrival_seconds)) / 3600.0
        print(
            f"{name}: mean JCT {jct:.2f} h, makespan {float(np.nanmax(run.finish_seconds)) / 3600.0:.2f} h, "
            f"{len(watch.seconds)} probes, {watch.last / 60.0:.0f} minutes to the last, "
            f"CPU {time.process_time() - began:.1f} s"
        )


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    data: Path = parser.parse_args().data
    speeds = SynergyProfiles.read(data)
    found = {model: measured_alone(speeds, model) for models in TASKS.values() for model in models}
    for model, one in found.items():
        below = f", below the processes' memory {100 * fmean(one.below):.0f} %" if one.below else ""
        print(
            f"{model}: {one.points} points, {one.measuring:.1f} of {one.minutes:.1f} minutes; error "
            f"{100 * fmean(one.errors):.1f} % on average, {100 * max(one.errors):.0f} % at worst{below}"
        )
    points, probing, minutes = (fmean(column) for column in list(zip(*found.values(), strict=True))[:3])
    print(
        f"all: {points:.1f} points, {probing:.1f} of {minutes:.1f} minutes, for {FULL_GRID} points and "
        f"{FULL_GRID * probing / points:.0f} minutes of the full grid; error "
        f"{100 * fmean(error for one in found.values() for error in one.errors):.1f} % on average"
    )
    static(data, speeds)


if __name__ == "__main__":
    main()
