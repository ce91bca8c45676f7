"""Makes the plan of a replay from its flags: reads the trace, takes or measures rates, chooses and checks the speed."""

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import builds
from eunomia.units import parse_duration
from eunomia_testbed.performance.replay_profiles import Costs, Measurements, read_measured
from eunomia_testbed.replay.arbiters import ReplayArbiter, own_arbiters
from eunomia_testbed.replay.budget import BudgetForecast, check_budget, first_speed, speed_for
from eunomia_testbed.replay.draft import Draft, draft_of
from eunomia_testbed.replay.faults.plan import drawn_plan, kinds_of, shortest_makespan
from eunomia_testbed.replay.flags import ReplayFlags
from eunomia_testbed.replay.measuring.machine import check_measured, present_versions
from eunomia_testbed.replay.pace import LEAST_PACE
from eunomia_testbed.replay.plan import ReplayPlan, plan_of
from eunomia_testbed.replay.scaling import speed_of
from eunomia_testbed.replay.slots import ReplaySlots
from eunomia_testbed.replay.twin import TwinFigures, costs_of_plan, figures_of, simulate_plan
from eunomia_testbed.results.facts import InputFile
from eunomia_testbed.running.plan import Plan as TracePlan
from eunomia_testbed.spec.simulation import SimulationSpec

MEASURED: Final = "profiles.toml"
"""File of a replay's folder with the rates and costs that it uses."""
MEASURING: Final = "measuring"
"""Subfolder with the runs that measured rates and costs."""


@builds
class PreparedReplay:
    """The prepared inputs of a replay: plan, measurements and forecast.

    Attributes:
        notes: sentences on the trace, dropped jobs, scaling, costs and faults.
        inputs: the files that were read.
    """

    plan: ReplayPlan
    draft: Draft
    measured: Measurements
    costs: Costs
    forecast: BudgetForecast
    notes: tuple[str, ...]
    inputs: tuple[InputFile, ...]


def prepared(
    flags: ReplayFlags, measure: Callable[[Draft], Measurements], arbiter: ReplayArbiter | None = None
) -> PreparedReplay:
    """Return the plan of a replay with its inputs, after checking the plan against its budget.

    Args:
        flags: the command's flags.
        measure: measures the rates that a draft needs; called only without ``--profiles``.
        arbiter: where the runs are made; None: on arbiters of the replay's own.

    Raises:
        InputError: a flag is invalid, no job fits, the budget is too small, or costs take too large a share.
    """
    budget = float(parse_duration(flags.budget, name="budget", place="--budget"))
    speed = None if flags.speed is None else speed_of(flags.speed)
    arbiter = arbiter or own_arbiters(flags)
    draft, read = drafted(flags, arbiter)
    slots, trace = draft.slots, draft.trace
    measured = measure(draft) if flags.profiles is None else _given(flags.profiles, arbiter, anyway=flags.anyway)
    trace_slots = None if flags.cluster is None else trace.cluster.gpus
    seeds = range(flags.seed, flags.seed + flags.repeats)

    def plan_at(speed: float) -> ReplayPlan:
        scaled = arbiter.scales_times
        return plan_of(draft, measured.profiles, speed=speed, seeds=seeds, trace_slots=trace_slots, scaled=scaled)

    def figures_at(plan: ReplayPlan) -> tuple[TwinFigures, ...]:
        """Return the figures of one simulation of each policy, with rates as measured."""
        one, rates = dataclasses.replace(plan, seeds=plan.seeds[:1]), measured.profiles.without_spread()
        with tempfile.TemporaryDirectory(prefix="eunomia-replay-") as folder:
            return figures_of(simulate_plan(one, rates, costs_of_plan(plan, measured), Path(folder) / "run"))

    def makespan(speed: float) -> float:
        return max(each.makespan_seconds for each in figures_at(plan_at(speed)))

    if speed is None:
        work = [job.alone_seconds * job.most for job in draft.jobs]
        last = float(draft.workload.jobs.arrival_seconds.max())
        speed = speed_for(budget, first_speed(work, slots.size, last, budget), makespan)
    plan = plan_at(speed)
    figures = figures_at(plan)
    forecast = BudgetForecast(speed=speed, budget_seconds=budget, runs=len(figures) * flags.repeats, figures=figures)
    check_budget(forecast, anyway=flags.anyway)
    plan = _with_faults(plan, flags, figures)
    costs = costs_of_plan(plan, measured)
    return PreparedReplay(
        plan=plan,
        draft=draft,
        measured=measured,
        costs=costs,
        forecast=forecast,
        notes=(
            *(*read, *arbiter.notes, *_notes(plan, slots), *_pace_notes(measured), *_change_notes(plan, costs)),
            *(forecast.words(costs), *_fault_notes(plan), *_save_notes(costs, arbiter)),
        ),
        inputs=trace.inputs,
    )


def _with_faults(plan: ReplayPlan, flags: ReplayFlags, figures: Sequence[TwinFigures]) -> ReplayPlan:
    """Return the plan with the faults set by the flags, within the shortest makespan of any policy."""
    if flags.faults is None:
        return plan
    makespan = shortest_makespan([each.makespan_seconds for each in figures])
    faults = drawn_plan(flags.faults, flags.fault_seed or 0, kinds_of(flags.fault_kinds), makespan)
    return dataclasses.replace(plan, faults=faults)


def drafted(flags: ReplayFlags, arbiter: ReplayArbiter) -> tuple[Draft, list[str]]:
    """Read the trace of a replay, and choose its programs; return the draft, and lines on the trace.

    Args:
        flags: the command's flags.
        arbiter: where the runs are made.

    Raises:
        InputError: a flag is invalid, or no job can run.
    """
    trace, read = _trace(flags, arbiter)
    slots, owner, place = arbiter.slots, arbiter.owner, arbiter.slots_flag
    stages = [profile.stages(slots.cluster, place=place) for profile in trace.profiles.values()]
    stand_ins, live = not flags.no_stand_ins, flags.resizes == "live"
    draft = draft_of(trace, slots, gangs=flags.gangs, stand_ins=stand_ins, live=live, owner=owner)
    weighed_by = [plugin for each in stages for plugin in each.weigh_users]
    arbiter.check_users(sorted({job.user for job in draft.jobs}), weighed_by)
    return draft, read


def _given(path: Path, arbiter: ReplayArbiter, *, anyway: bool) -> Measurements:
    """Read a file of profiles, and check that it was measured on the machine of the runs with these versions."""
    measured, machine = read_measured(path), arbiter.measured_on
    check_measured(measured, machine=machine, versions=present_versions(), place=str(path), anyway=anyway)
    return measured


def _trace(flags: ReplayFlags, arbiter: ReplayArbiter) -> tuple[TracePlan, list[str]]:
    """Read the trace, and load the policies; return both as a plan, and lines on the trace."""
    from eunomia_testbed.spec.planning import plan_of as trace_plan_of

    if flags.trace == "-":
        raise InputError(
            "the trace of a replay must be a file, which --resume can read again", value="-", place="trace"
        )
    with tempfile.TemporaryDirectory(prefix="eunomia-replay-") as folder:
        trace, lines = trace_plan_of(
            SimulationSpec(
                trace=flags.trace,
                workload=flags.workload,
                cluster=flags.cluster or f"1x{max(64, arbiter.slots.size)} gpu",
                policies=arbiter.policies(Path(folder)),
                settings=tuple(flags.settings or ()),
                seed=flags.seed,
                format=flags.format,
                throughputs=flags.throughputs,
                speeds=flags.speeds,
                unknown_models=tuple(flags.unknown_models or ()),
                elastic=flags.elastic,
            )
        )
    return trace, [line.strip() for line in lines[:1]]


def _pace_notes(measured: Measurements) -> list[str]:
    """Return a warning if slots were too slow in the measurement, so that its rates are too low."""
    if measured.pace is None or measured.pace >= LEAST_PACE:
        return []
    return [f"rates and costs were measured on slots that had {measured.pace:.1%} of their pace: measure them again"]


def _save_notes(costs: Costs, arbiter: ReplayArbiter) -> list[str]:
    """Return a note if the policy of a running arbiter suspended no measured job, so that no save is known."""
    if arbiter.scales_times or costs.save_seconds > 0.0:
        return []
    return ["no save was measured under the arbiter's policy, so the simulation has saves for free"]


def _change_notes(plan: ReplayPlan, costs: Costs) -> list[str]:
    """Return a note on live changes of size, with a warning if their costs have not been measured."""
    if not plan.live:
        return []
    live = sum(app.live for app in plan.apps)
    note = f"{live} of {len(plan.apps)} apps change their size live"
    if costs.pause_seconds > 0.0:
        return [f"{note}: pause {costs.pause_seconds:.2g} s, join {costs.join_seconds:.2g}"]
    return [f"{note}; what that costs is not in the profiles, so the simulation has it for free: measure them again"]


def _fault_notes(plan: ReplayPlan) -> list[str]:
    return [] if plan.faults is None else [plan.faults.words()]


def _notes(plan: ReplayPlan, slots: ReplaySlots) -> list[str]:
    jobs = sum(app.trials for app in plan.apps)
    dropped = len(plan.workload.dropped)
    apps = f"{len(plan.apps)} apps" if jobs == len(plan.apps) else f"{len(plan.apps)} apps with {jobs} jobs"
    cut = f", {dropped} left out (dropped.csv)" if dropped else ""
    notes = [
        f"{apps} on {slots.size} {slots.kinds()}{cut}; {plan.factors.words()}; "
        f"demand {plan.demand:.2g} times the slots while jobs arrive"
    ]
    if plan.stand_ins:
        named = ", ".join(f"{model or 'no model'}: {program}" for model, (program, _) in plan.stand_ins.items())
        notes.append(f"programs that stand in for a model: {named}")
    for policy, changes in plan.changes.items():
        if changes:
            notes.append(f"{policy}: {', '.join(changes)}")
    return notes
