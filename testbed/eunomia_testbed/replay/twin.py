"""Simulates the plan of a replay from measured rates and costs, without input from the real run.

The functions take a plan, profiles and costs, but no path of a state folder, so no result of the real run can reach
the simulator.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from eunomia.model.shapes import value
from eunomia.units import Reals
from eunomia_testbed.metrics.serial import serial_seconds
from eunomia_testbed.metrics.times_alone import TimesAlone
from eunomia_testbed.performance.replay_profiles import Costs, Measurements, Profiles
from eunomia_testbed.replay.causes import Cause, slot_time
from eunomia_testbed.replay.faults.simulated import with_faults
from eunomia_testbed.replay.plan import PlannedApp, ReplayPlan
from eunomia_testbed.replay.speeds import ProfiledSpeeds
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.running.many import run_plan
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.simulator import Costs as SimulatedCosts
from eunomia_testbed.simulator import SimulationOptions
from eunomia_testbed.simulator.options import Keep, Reports
from eunomia_testbed.simulator.progress.truth import Speeds
from eunomia_testbed.workload import Workload

DRAWS: Final = 10
"""Fewest simulations of a policy to which a real run is compared."""
COSTS: Final = (Cause.START, Cause.RESTORE, Cause.SAVE, Cause.RESIZE)


@value
class TwinFigures:
    """The figures of a simulated policy for the budget check, as means over the repeats."""

    policy: str
    makespan_seconds: float
    useful_slot_seconds: float
    """Slot-seconds in which jobs make progress."""
    cost_slot_seconds: float
    """Slot-seconds of starts, restores, saves and changes of size."""

    @property
    def cost_share(self) -> float:
        """Return the fraction of costs in the slot time of costs and progress together."""
        whole = self.useful_slot_seconds + self.cost_slot_seconds
        return self.cost_slot_seconds / whole if whole > 0.0 else 0.0


def simulate_plan(plan: ReplayPlan, profiles: Profiles, costs: Costs, folder: Path) -> RunData:
    """Simulate every policy and seed of a plan, and write the tables to a new folder.

    Each job's speed is drawn by the seed from the measured spread of rates. Equal arguments write equal tables.

    Raises:
        InputError: the folder exists, or a rate is missing.
        EunomiaError: a policy failed.
    """
    outcome = run_plan(with_faults(_simulation(plan, profiles, costs), plan.faults), folder, processes=1, report=False)
    if outcome.failed:
        raise outcome.failed[0]
    return RunData.load(folder)


def with_draws(plan: ReplayPlan, profiles: Profiles) -> ReplayPlan:
    """Return the plan with at least ``DRAWS`` seeds, so that no single draw determines the result.

    Without a spread of rates all seeds would have equal jobs, and the plan is returned unchanged.
    """
    if profiles.spread == 0.0:
        return plan
    first = plan.seeds[0]
    return dataclasses.replace(plan, seeds=(*plan.seeds, *range(first + len(plan.seeds), first + DRAWS)))


def slowed(workload: Workload, factors: Reals) -> Workload:
    """Return the workload with each job's iterations multiplied by a factor ([job]), at the same rates."""
    regimes = {
        row: tuple(dataclasses.replace(part, iterations=part.iterations * float(factors[row])) for part in parts)
        for row, parts in workload.regimes.items()
    }
    changed = dataclasses.replace(workload.jobs, iterations=workload.jobs.iterations * factors)
    return dataclasses.replace(workload, jobs=changed, regimes=regimes)


def costs_of_plan(plan: ReplayPlan, measured: Measurements) -> Costs:
    """Return the mean costs of the plan's jobs, each with the costs of its program."""
    counts = Counter({app.name: app.trials for app in plan.apps})
    whole = counts.total()
    each = [(counts[app.name] / whole, measured.costs_of(app.program)) for app in plan.apps]
    names = list(Costs.__annotations__)
    return Costs(**{name: math.fsum(part * getattr(costs, name) for part, costs in each) for name in names})


def times_alone(plan: ReplayPlan, profiles: Profiles, costs: Costs) -> dict[str, TimesAlone]:
    """Return the simulated times alone of each app's jobs by app name, also used for the rho of real runs.

    Raises:
        InputError: a rate is missing.
    """
    workload, models = _with_costs(plan.workload, plan.apps, costs), ProfiledSpeeds(profiles)
    serial = serial_seconds(workload, plan.cluster, models)
    exclusive = Speeds(workload, plan.cluster, models).ideal_seconds()
    jobs = workload.jobs
    found = {}
    for app, name in enumerate(workload.apps.id):
        row = max(np.flatnonzero(jobs.app == app).tolist(), key=lambda row: float(jobs.iterations[row]))
        found[name] = TimesAlone(
            serial_seconds=math.nan if serial is None else float(serial[row]),
            exclusive_seconds=float(exclusive[row]),
            most=int(jobs.most[row]),
            iterations=float(jobs.iterations[row]),
        )
    return found


def figures_of(data: RunData) -> tuple[TwinFigures, ...]:
    """Return the budget figures of each policy of a simulation."""
    import polars as pl

    found = []
    for policy in data.apps["policy"].unique(maintain_order=True):
        seeds = data.apps.filter(pl.col("policy") == policy)["seed"].unique().to_list()
        times = [slot_time(data, policy, seed) for seed in seeds]
        ends = data.apps.filter(pl.col("policy") == policy).group_by("seed").agg(pl.col("finish_seconds").max())
        found.append(
            TwinFigures(
                policy=policy,
                makespan_seconds=float(ends["finish_seconds"].mean() or math.nan),  # type: ignore[arg-type]
                useful_slot_seconds=math.fsum(time.seconds(Cause.USEFUL) for time in times) / len(times),
                cost_slot_seconds=math.fsum(time.seconds(cause) for time in times for cause in COSTS) / len(times),
            )
        )
    return tuple(found)


def _simulation(plan: ReplayPlan, profiles: Profiles, costs: Costs) -> Plan:
    """Return the plan of the simulator: app masters know their work and measure their rates, as live ones do."""
    workload = _with_costs(plan.workload, plan.apps, costs)
    return Plan(
        workloads={seed: _drawn(workload, profiles.spread, seed) for seed in plan.seeds},
        cluster=plan.cluster,
        cluster_text=plan.cluster_text,
        profiles=plan.profiles,
        options=SimulationOptions(
            costs=SimulatedCosts(
                start=costs.start_seconds,
                checkpoint=costs.save_seconds,
                restore=costs.restore_seconds,
                release=costs.release_seconds,
                join=costs.join_seconds if plan.live else 0.0,
                pause=costs.pause_seconds if plan.live else 0.0,
            ),
            resizes="live" if plan.live else "restart",
            reports=Reports(know=("work",)),
            agents=True,
            answer_seconds=costs.decide_seconds,
            keep=Keep(segments=True),
        ),
        models=ProfiledSpeeds(profiles),
        rho=plan.rho,
        unfair_above=plan.unfair_above,
        command=("replay",),
    )


def _drawn(workload: Workload, spread: float, seed: int) -> Workload:
    """Return the workload with each job's work multiplied by a factor of mean 1, drawn by a seed."""
    if spread == 0.0:
        return workload
    drawn = np.random.default_rng(seed).normal(-(spread**2) / 2.0, spread, workload.size)
    return slowed(workload, np.exp(drawn))


def _with_costs(workload: Workload, apps: Sequence[PlannedApp], costs: Costs) -> Workload:
    """Return the workload with the costs for which the simulator has no option.

    A job arrives once its app master has started. The evaluation and last checkpoint after a job's last step are
    modelled as extra iterations at its largest size.
    """
    jobs = workload.jobs
    alone = {app.name: app.alone_seconds for app in apps}
    names = [alone[workload.apps.id[app]] for app in jobs.app.tolist()]
    more = np.rint(costs.finish_seconds * jobs.iterations / np.maximum(names, 1e-9))
    regimes = {
        row: (*parts[:-1], dataclasses.replace(parts[-1], iterations=parts[-1].iterations + float(more[row])))
        for row, parts in workload.regimes.items()
    }
    changed = dataclasses.replace(
        jobs, arrival_seconds=jobs.arrival_seconds + costs.arrive_seconds, iterations=jobs.iterations + more
    )
    return dataclasses.replace(workload, jobs=changed, regimes=regimes)
