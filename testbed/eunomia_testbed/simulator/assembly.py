"""Assembles a simulation by creating its parts in the order of their dependencies."""

import dataclasses
import math
from functools import partial

from eunomia.arbiter import Arbiter
from eunomia.contract.contracts import Feature, Triggers
from eunomia.contract.stages import Stages
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry
from eunomia.units import Stage
from eunomia_testbed.calls.notes import CallNotes
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.simulator.agenda import Agenda
from eunomia_testbed.simulator.apps.amount_reports import AmountReports
from eunomia_testbed.simulator.apps.app_division import AppDivision
from eunomia_testbed.simulator.apps.app_leases import AppLeases
from eunomia_testbed.simulator.apps.app_states import AppStates
from eunomia_testbed.simulator.apps.apps import SimulatedApps
from eunomia_testbed.simulator.apps.bids import Bidders
from eunomia_testbed.simulator.apps.masters import Masters
from eunomia_testbed.simulator.apps.reporting import Reporter
from eunomia_testbed.simulator.apps.simulated_desk import SimulatedDesk
from eunomia_testbed.simulator.arrivals import Arrivals
from eunomia_testbed.simulator.engine import Engine
from eunomia_testbed.simulator.executing.executor import Executor
from eunomia_testbed.simulator.executing.gpu_table import GpuTable
from eunomia_testbed.simulator.executing.saves import PeriodicSaves
from eunomia_testbed.simulator.failures import FailurePlan
from eunomia_testbed.simulator.guard import check_plugins
from eunomia_testbed.simulator.logs.logs import Logs
from eunomia_testbed.simulator.logs.observers import Observers
from eunomia_testbed.simulator.logs.step_log import StepLog
from eunomia_testbed.simulator.logs.timing import Timings
from eunomia_testbed.simulator.machine_changes import with_all
from eunomia_testbed.simulator.machine_faults import MachineFaults
from eunomia_testbed.simulator.options import Failures, SimulationOptions
from eunomia_testbed.simulator.progress.states import REJECTED, JobStates
from eunomia_testbed.simulator.progress.truth import Speeds
from eunomia_testbed.simulator.progress.work import Work
from eunomia_testbed.simulator.rounds import run_in_rounds
from eunomia_testbed.simulator.simulation_state import SimulationState
from eunomia_testbed.simulator.worker_faults import WorkerFaults
from eunomia_testbed.simulator.workload_rows import WorkloadRows
from eunomia_testbed.workload import Workload


def assemble(
    workload: Workload,
    cluster: Cluster,
    profile: Profile,
    options: SimulationOptions,
    *,
    models: PerformanceModel | None = None,
    seed: int = 0,
    registry: Registry | None = None,
    observers: Observers = (),
) -> Engine:
    """Return the engine of one run, ready to run once.

    Args:
        workload: the apps and jobs that arrive.
        cluster: the machines and GPUs.
        profile: the policy, which names a plugin for each stage.
        options: options of the simulation.
        models: a performance model; None: the workload's own speeds.
        seed: seed of all random draws.
        registry: the plugins of the fallback policy; None: those of the profile.
        observers: called after every step, and at the end.

    Raises:
        InputError: the options are invalid, or the cluster does not suit the profile.
        PluginError: a plugin imports the simulator's true values.
    """
    options.check()
    check_plugins(profile)
    whole = with_all(cluster, options.machines)
    arbiter = _arbiter(cluster, whole, profile, registry, options, seed)
    timings = Timings(arbiter.spent) if options.keep.timings else None
    sim = _state(workload, whole, arbiter, profile, options, Speeds(workload, whole, models), seed)
    sim.gpus.there = cluster.gpus
    unfit = sim.speeds.unfit()
    for job in unfit:
        sim.jobs.state[job.job] = REJECTED
    executor = Executor(sim)
    masters = Masters(sim, SimulatedDesk(sim))
    apps = SimulatedApps(sim, masters, AppDivision(sim, executor.runs, masters))
    failures = None
    if options.failures is not None or options.machines:
        machines = MachineFaults(sim, executor, apps)
        failing = options.failures or Failures()
        failures = FailurePlan(failing, whole, seed, machines.lose, machines.repair)
        for change in options.machines:
            failures.plan(change.time_seconds, partial(machines.change, change.event))
        workers = WorkerFaults(sim, executor, failing.most_worker_faults, failures.call)
        for fault in failing.worker_faults:
            failures.call(fault.time_seconds, partial(workers.happen, fault))
        failures.stepped = workers.stepped
    drive = Engine.run_freely if options.rules is None else partial(run_in_rounds, rules=options.rules)
    known = "amounts" in options.reports.facts
    arrivals = Arrivals(sim, apps, masters, AmountReports(workload, whole, sim.speeds, known=known))
    log = StepLog(sim, unfit, timings, tuple(observers))
    if failures is not None:
        log.guard.down = failures.down
    return Engine(sim, executor, apps, arrivals, Bidders(sim, masters), failures, log, drive)


def _arbiter(
    cluster: Cluster,
    whole: Cluster,
    profile: Profile,
    registry: Registry | None,
    options: SimulationOptions,
    seed: int,
) -> Arbiter:
    stages = profile.stages(whole)  # also rejects a machine that joins later
    fallback = Profile.fallback(registry=registry or profile.registry).stages(whole)
    return Arbiter(cluster, stages, fallback, seed=seed, plain=options.plain)


def _state(
    workload: Workload,
    cluster: Cluster,
    arbiter: Arbiter,
    profile: Profile,
    options: SimulationOptions,
    speeds: Speeds,
    seed: int,
) -> SimulationState:
    batches = {row: tuple(one.batch_size for one in regimes) for row, regimes in workload.regimes.items()}
    logs = Logs(options.keep, cluster, workload.size, batches)
    agenda = Agenda()
    jobs = JobStates(workload.jobs.most.tolist(), logs.waits)
    work = Work(
        workload,
        speeds,
        agenda,
        checkpoint_every=options.unpaid_checkpoints_seconds,
        saves=_saves(options, workload.size),
        segments=logs.segments,
    )
    gpus = GpuTable(cluster.gpus, workload.size, logs.leases)
    return SimulationState(
        workload=workload,
        cluster=cluster,
        profile=profile,
        options=options,
        seed=seed,
        arbiter=arbiter,
        speeds=speeds,
        agenda=agenda,
        logs=logs,
        jobs=jobs,
        work=work,
        reporter=Reporter(
            workload,
            cluster,
            speeds,
            work,
            options.reports,
            divides=options.agents,
            seed=seed,
            by_kind=Feature.RATES_BY_KIND in arbiter.chosen.contract(Stage.ELASTICITY).gives
            and "amounts" not in options.reports.facts,
        ),
        gpus=gpus,
        leases=AppLeases(gpus, jobs),
        rows=WorkloadRows(workload),
        apps=AppStates(len(workload.apps.id)),
        notes=CallNotes(),
    )


def note_calls(engine: Engine, notes: CallNotes) -> None:
    """Record each call of a plugin before it begins; to be called before the engine runs."""
    arbiter = engine.sim.arbiter
    engine.note(notes)
    arbiter.note = notes.of_rounds(arbiter.chosen.names)
    arbiter.use(_noted(arbiter.chosen, notes))


def _noted(stages: Stages, notes: CallNotes) -> Stages:
    """Return the same stages, with the call that gets the allocation's triggers recorded too."""
    declare = stages.triggers
    if declare is None:
        return stages

    def noted(cluster: Cluster) -> Triggers:
        with notes.asking(stages.names[Stage.ALLOCATION], "triggers"):
            return declare(cluster)

    return dataclasses.replace(stages, triggers=noted)


def _saves(options: SimulationOptions, jobs: int) -> PeriodicSaves | None:
    """Return the periodic checkpoints that take time; None: the options set none, or the run has round rules."""
    costs = options.costs
    if math.isinf(costs.checkpoint_every) or options.rules is not None:
        return None
    return PeriodicSaves(jobs, costs.checkpoint_every, costs.checkpoint)
