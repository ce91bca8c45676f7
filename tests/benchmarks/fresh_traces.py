"""Generated traces, and runs of policies on them under one set of rules, for ``bench_laxity`` and others.

Traces are those of Shockwave's generator, in turn 120 jobs on 32 GPUs, 220 on 64, 460 on 128 and 900 on 256. In the
first ten of each twenty all jobs arrive within the first third of the run, in the others a job arrives every 150 s on
32 GPUs (and the more often the more GPUs there are), so that arrivals go on over the whole run. All policies run under
the round rules of the peer's simulator (rounds of 120 s, a restart costs 20 s), decide in every round, and know the
work of each job and the rates that were measured so far.
"""

import gc
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from eunomia.arbiter import Arbiter
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.metrics.fairness import UNFAIR_RHO
from eunomia_testbed.metrics.judged import judge
from eunomia_testbed.reproduce.shockwave.cells import make_rates
from eunomia_testbed.simulator import Keep, Reports, SimulationOptions, simulate_one
from eunomia_testbed.simulator.gavel_rules import SHOCKWAVE, gavel_rules, under_rules

SIZES = ((120, 32), (220, 64), (460, 128), (900, 256))
"""Jobs and GPUs."""
DENSE, STEADY = 40.0, 150.0
"""Mean seconds between arrivals on 32 GPUs."""
RHO_KINDS = ("static", "contention", "exclusive", "themis")


@dataclass(frozen=True)
class Trace:
    """Options of the generator."""

    jobs: int
    gpus: int
    gap_seconds: float
    seed: int

    @property
    def contention(self) -> float:
        """Jobs of the whole trace per GPU, at least 1: a fact of the future."""
        return max(1.0, self.jobs / self.gpus)

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.jobs} jobs, {self.gpus} GPUs, a job every {self.gap_seconds:g} s"


PUBLISHED = Trace(jobs=120, gpus=32, gap_seconds=40.0, seed=25)
"""The published trace, line by line."""


def trace_of(number: int, first_seed: int) -> Trace:
    """Return one of the traces, from 0."""
    jobs, gpus = SIZES[number % len(SIZES)]
    gap = (DENSE if number % 20 < 10 else STEADY) * 32 / gpus
    return Trace(jobs=jobs, gpus=gpus, gap_seconds=gap, seed=first_seed + number)


@dataclass(frozen=True)
class Way:
    """A preset, and what differs from it as shipped."""

    name: str
    preset: str
    settings: Mapping[str, object] = field(default_factory=dict)
    informed: str = ""
    """The plugin whose option ``contention`` gets that of the whole trace."""
    error: float = 0.0
    """Relative error of measured rates: each app's are off by a factor from 1 - error to 1 + error."""


@dataclass(frozen=True)
class Found:
    """The figures of a run."""

    makespan: float
    """Seconds."""
    jct: float
    """Mean, in seconds."""
    worst: Mapping[str, float]
    """The worst ρ of each kind."""
    above: float
    """Part of the jobs with a static ρ above 1.05."""
    cpu: float
    """Seconds of the simulation."""
    round_ms: float
    """The most CPU that one round of the arbiter took, in milliseconds."""


def run_cell(throughputs: str, cell: tuple[Way, Trace]) -> Found:
    """Simulate a policy on a trace."""
    way, trace = cell
    options = {"jobs": trace.jobs, "interarrival_seconds": trace.gap_seconds, "throughputs": throughputs}
    workload = generate_workload("shockwave", options, trace.seed)
    cluster = Cluster.parse(f"{trace.gpus}x1 V100")
    rules = replace(SHOCKWAVE, least_between_seconds=0.0)
    simulation = SimulationOptions(
        rules=gavel_rules(workload, cluster, make_rates(throughputs), rules),
        reports=Reports(know="measured", errors={"rates": way.error} if way.error else {}),
        keep=Keep(rounds=False, leases=False, waits=False, queue=False, records=False),
    )
    settings = dict(way.settings)
    if way.informed:
        settings[f"plugins.{way.informed}.contention"] = trace.contention
    profile = under_rules(Profile.load(way.preset, settings=settings), rules)
    gc.collect()
    gc.freeze()  # a collection of all objects of the trace is not the arbiter's
    with _Rounds() as rounds:
        began = time.process_time()
        run = simulate_one(workload, cluster, profile, options=simulation, seed=0)
        spent = time.process_time() - began
    jobs = judge(run, workload, cluster).jobs
    kinds = (jobs.rho_static, jobs.rho_contention, jobs.rho_exclusive, jobs.rho)
    return Found(
        makespan=float(np.nanmax(run.finish_seconds)),
        jct=float(np.nanmean(jobs.jct_seconds)),
        worst={name: float(np.nanmax(rho)) for name, rho in zip(RHO_KINDS, kinds, strict=True)},
        above=float((jobs.rho_static > UNFAIR_RHO).mean()),
        cpu=spent,
        round_ms=1000.0 * rounds.most,
    )


class _Rounds:
    """Measures the greatest CPU of one step of an arbiter."""

    def __enter__(self) -> "_Rounds":
        self.most, self._step = 0.0, Arbiter.step
        step = self._step

        def timed(*given: object, **named: object) -> object:
            began = time.process_time()
            made = step(*given, **named)  # type: ignore[arg-type]
            self.most = max(self.most, time.process_time() - began)
            return made

        Arbiter.step = timed  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Arbiter.step = self._step  # type: ignore[method-assign]


def run_all(
    throughputs: str, cells: Iterable[tuple[Way, Trace]], processes: int, store: Path | None = None
) -> Iterator[tuple[Way, Trace, Found]]:
    """Simulate the cells, in their order; with a store, those that it has are read from it and the others added."""
    wanted = list({repr(cell): cell for cell in cells}.items())
    kept: dict[str, dict[str, object]] = json.loads(store.read_text()) if store and store.is_file() else {}
    missing = [cell for key, cell in wanted if key not in kept]
    with ProcessPoolExecutor(processes) as pool:
        fresh = pool.map(partial(run_cell, throughputs), missing)
        for key, (way, trace) in wanted:
            found = Found(**kept[key]) if key in kept else next(fresh)  # type: ignore[arg-type]
            if store and key not in kept:
                kept[key] = asdict(found)
                store.write_text(json.dumps(kept))
            yield way, trace, found
