"""Runs the simulation of one workload under one profile."""

from collections.abc import Callable

from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_testbed.calls.watch import CallWatch
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.simulator.assembly import assemble, note_calls
from eunomia_testbed.simulator.logs.observers import ProgressObserver
from eunomia_testbed.simulator.logs.run import SimulatedRun
from eunomia_testbed.simulator.options import Progress, SimulationOptions
from eunomia_testbed.workload import Workload


def simulate_one(
    workload: Workload,
    cluster: Cluster,
    profile: Profile,
    *,
    options: SimulationOptions = SimulationOptions(),  # noqa: B008 - a frozen value
    models: PerformanceModel | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    watch: CallWatch | None = None,
) -> SimulatedRun:
    """Simulate a workload under one profile, driving the arbiter of the live cluster in virtual time.

    Args:
        workload: the jobs and their arrivals.
        cluster: the machines and GPUs.
        profile: the policy, which names a plugin for each stage.
        options: costs, failures, reports, rules, and the logs to keep.
        models: the performance model; None: the workload's own speeds.
        seed: seed of all random draws.
        progress: called regularly with the progress of the run.
        watch: limits each call of a plugin; None: no call has a limit.

    Returns:
        The run; equal arguments give equal runs, except for ``timings``.

    Raises:
        InputError: the options are invalid, or the cluster does not suit the profile.
        EunomiaError: the policy makes no progress, or a call of a plugin took longer than its limit.
    """
    observers = () if progress is None else (ProgressObserver(progress),)
    engine = assemble(workload, cluster, profile, options, models=models, seed=seed, observers=observers)
    if watch is None:
        return engine.run()
    note_calls(engine, watch.notes)
    with watch.limited():
        return engine.run()
