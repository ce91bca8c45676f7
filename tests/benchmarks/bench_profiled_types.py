"""What profiling by GPU type costs and brings: OEF on three types with measured, wrong and declared speedups.

``python tests/benchmarks/bench_profiled_types.py`` prints a line a case: probes and their mini-batches, GPU-seconds
spent on them, the mean and the largest error of the speedups that were learnt, and mean JCT over that with declared
speedups. 20 tenants of the generator ``oef`` on 8 + 8 + 8 GPUs, four on a host; a start costs 10 s; seed 0.
"""

import time
from typing import NamedTuple

import numpy as np

from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_testbed.generators import generate_workload, generated_speeds
from eunomia_testbed.performance.speeds import Setting
from eunomia_testbed.simulator import Costs, Reports, SimulationOptions, SimulationState, assemble

CLUSTER = Cluster.parse("2x4 RTX3070, 2x4 RTX3080, 2x4 RTX3090")
ERRORS = (0.0, 0.1, 0.2, 0.3)
PROFILED = {"stages.elasticity": "profiled_types"}


class Seen(NamedTuple):
    """What a run came to."""

    jct: float
    probes: int
    seconds: float
    mean_error: float
    worst_error: float


class Watch:
    """Counts the probes of a run and the GPU-seconds between each and its end; keeps what was learnt."""

    def __init__(self) -> None:
        self.probes, self.seconds, self.profiles = 0, 0.0, {}
        self._began: dict[int, tuple[float, int]] = {}

    def stepped(self, sim: SimulationState, decision: Decision) -> None:
        state = sim.arbiter.state
        for order in (*decision.transitions, *decision.orders):
            if order.kind is not TransitionKind.PROBE:
                continue
            if order.probe is not None and order.probe.iterations:
                self.probes += 1
                self._began[int(order.lease)] = (float(decision.now), int(order.gpus.size))
            elif int(order.lease) in self._began:
                since, gpus = self._began.pop(int(order.lease))
                self.seconds += gpus * (float(decision.now) - since)
        names = {row: name for name, row in state.names.kinds.items()}
        self.profiles = {names[kind]: rates for kind, rates in state.reports.profiles.items() if kind in names}

    def ended(self, sim: SimulationState) -> None:
        pass


def simulated(settings: dict[str, object], reports: Reports) -> Seen:
    """Run OEF once."""
    options = {"tenants": 20}
    workload, speeds, watch = generate_workload("oef", options, 0), generated_speeds("oef", options), Watch()
    profile = Profile.load("oef", settings=settings)
    made = SimulationOptions(reports=reports, costs=Costs(start=10.0))
    run = assemble(workload, CLUSTER, profile, made, models=speeds, observers=[watch]).run()
    errors = []
    for model, rates in watch.profiles.items():
        by_gpus: dict[int, dict[str, float]] = {}
        for rate in rates:
            by_gpus.setdefault(rate.gpus, {}).setdefault(rate.gpu_type, rate.rate)
        for gpus, learnt in by_gpus.items():
            true = {
                name: speeds.rate(model, Setting(gpus=gpus, gpu_type=name, locality=rates[0].locality))
                for name in learnt
            }
            slowest = min(true, key=true.__getitem__)
            errors += [abs(learnt[name] / learnt[slowest] / (true[name] / true[slowest]) - 1.0) for name in learnt]
    jct = float(np.mean(run.finish_seconds - workload.jobs.arrival_seconds))
    return Seen(jct, watch.probes, watch.seconds, float(np.mean(errors or [0.0])), max(errors, default=0.0))


def main() -> None:
    """Print a line a case."""
    declared = simulated({}, Reports(know=("types",)))
    print(f"declared speedups: mean JCT {declared.jct:.0f} s")
    for until in ("assumed", "wait"):
        for error in ERRORS:
            began = time.process_time()
            settings = {**PROFILED, "plugins.profiled_types.until_profiled": until}
            seen = simulated(settings, Reports(know="measured", errors={"types": error} if error else {}))
            print(
                f"{until}, rates by type off by up to {100 * error:.0f} %: {seen.probes} probes of 20 mini-batches, "
                f"{seen.seconds:.0f} GPU-seconds, speedups off by {100 * seen.mean_error:.1f} % on average and "
                f"{100 * seen.worst_error:.1f} % at worst, mean JCT {seen.jct / declared.jct:.3f} of declared, "
                f"CPU {time.process_time() - began:.1f} s"
            )


if __name__ == "__main__":
    main()
