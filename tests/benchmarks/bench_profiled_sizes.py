"""Curves measured as jobs start (AFS §4.5): their error by the third job of a kind, and JCT against declared curves.

``python tests/benchmarks/bench_profiled_sizes.py TRACE SCALING [CLUSTER ...]`` with Philly's trace, which has models
that the authors drew, their seconds per step, and virtual clusters of Table 3 by number. Each cluster runs on 16
machines of 4 GPUs under ``coddl`` twice: with curves measured by ``profiled_sizes``, and with all rates known from the
beginning. Prints CPU time; asserts nothing.
"""

import argparse
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.snapshot import Measured
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_plugins.elasticity.profiled_sizes import rates_between, rates_by_size
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.performance import AfsScaling
from eunomia_testbed.simulator import Costs, Reports, SimulationOptions, SimulationState, assemble
from eunomia_testbed.workload import Workload

MACHINE = 4
CLUSTER = f"16x{MACHINE} V100"
THIRD = 3
DECLARED: Mapping[str, object] = {"stages.elasticity": "throughput"}


class Errors(NamedTuple):
    """Relative errors of one kind's curve, at the sizes that network packing can grant."""

    measured: list[float]
    """Up to the largest size that was measured."""
    beyond: list[float]
    """Above it, up to the size at which the model is fastest."""


class Watch:
    """Counts probes, and takes the curve of each kind as its third job arrives and as its third job starts."""

    def __init__(self, workload: Workload, scaling: AfsScaling) -> None:
        self._scaling = scaling
        jobs = workload.jobs
        self._kind = {job: workload.models[model] for job, model in zip(jobs.id, jobs.model.tolist(), strict=True)}
        self._jobs = iter(sorted(zip(jobs.arrival_seconds.tolist(), jobs.id, strict=True)))
        self._next = next(self._jobs)
        self._arrived: Counter[str] = Counter()
        self._started: Counter[str] = Counter()
        self.probes = 0
        self.at_arrival: dict[str, Errors] = {}
        self.at_start: dict[str, Errors] = {}

    def stepped(self, sim: SimulationState, decision: Decision) -> None:
        """Look at the curves before what this step starts."""
        while self._next[0] <= decision.now:
            self._count(sim, self._kind[self._next[1]], self._arrived, self.at_arrival)
            self._next = next(self._jobs, (np.inf, ""))
        for order in decision.transitions:
            if order.kind.effect.starts and order.job is not None:
                self._count(sim, self._kind[order.job], self._started, self.at_start)
            self.probes += order.kind is TransitionKind.PROBE and order.probe is not None

    def ended(self, sim: SimulationState) -> None:
        """Nothing is left to take."""

    def _count(self, sim: SimulationState, kind: str, counts: Counter[str], errors: dict[str, Errors]) -> None:
        counts[kind] += 1
        if counts[kind] == THIRD:
            errors[kind] = self._errors(sim, kind)

    def _errors(self, sim: SimulationState, kind: str) -> Errors:
        state, scaling = sim.arbiter.state, self._scaling
        known = state.reports.profiles.get(state.names.kinds.get(kind, -1), ())
        seen = [
            Measured(job=0, gpus=rate.gpus, gpu_type=rate.gpu_type, locality=rate.locality, rate=rate.rate)
            for rate in known
        ]
        rates = rates_by_size(seen, MACHINE)
        if not rates:
            return Errors([], [])
        sizes = np.arange(1, scaling.most(kind) + 1)
        true = np.array([scaling.at(kind, size) for size in sizes.tolist()])
        off = np.abs(rates_between(rates, sizes) / true - 1.0)
        packed = (sizes % MACHINE == 0) | (sizes < MACHINE) & (sizes & (sizes - 1) == 0)
        below = sizes <= max(rates)
        return Errors(off[packed & below].tolist(), off[packed & ~below].tolist())


def run(
    workload: Workload, scaling: AfsScaling, settings: Mapping[str, object], reports: Reports, costs: Costs
) -> tuple[float, Watch, float]:
    """Simulate once: mean JCT in hours, what was seen, CPU seconds."""
    began, watch = time.process_time(), Watch(workload, scaling)
    profile = Profile.load("coddl", settings=dict(settings))
    options = SimulationOptions(reports=reports, costs=costs)
    found = assemble(workload, Cluster.parse(CLUSTER), profile, options, models=scaling, observers=[watch]).run()
    jct = float(np.mean(found.finish_seconds - workload.jobs.arrival_seconds)) / 3600.0
    return jct, watch, time.process_time() - began


def said(errors: Mapping[str, Errors]) -> str:
    """Mean and worst error over the kinds' sizes, and how many of the sizes were measured."""
    parts = []
    for name in Errors._fields:
        found = [off for one in errors.values() for off in getattr(one, name)]
        error = f"{100 * fmean(found):.1f} % off, at worst {100 * max(found):.0f} %" if found else "none"
        parts.append(f"{len(found)} sizes {name}: {error}")
    unknown = sum(not one.measured for one in errors.values())
    return f"{', '.join(parts)}, {unknown} of {len(errors)} kinds unknown"


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("scaling", type=Path)
    parser.add_argument("clusters", nargs="*", default=["4", "6", "7", "9", "11"])
    parser.add_argument("--start", type=float, default=0.0, help="seconds that a start costs")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a change of size costs")
    given = parser.parse_args()
    scaling, costs = AfsScaling.read(given.scaling), Costs(start=given.start, pause=given.pause)
    for cluster in given.clusters:
        options = {"trace": given.trace, "cluster": cluster, "scaling": given.scaling, "told_models": True}
        workload = generate_workload("afs", options, 0)
        measured, watch, cpu = run(workload, scaling, {}, Reports(know="measured"), costs)
        declared, _, less = run(workload, scaling, DECLARED, Reports(know=("sizes", "types")), costs)
        more = measured / declared - 1.0
        print(
            f"#{cluster}: mean JCT {measured:.2f} h measured, {declared:.2f} h declared, {more:+.2%}; "
            f"{watch.probes} probes; CPU {cpu:.1f} and {less:.1f} s\n"
            f"  as the third job of a kind arrives: {said(watch.at_arrival)}\n"
            f"  as it starts: {said(watch.at_start)}"
        )


if __name__ == "__main__":
    main()
