"""Simulates one workload under one profile."""

from collections.abc import Callable

from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.simulator.assembly import assemble
from eunomia_testbed.simulator.observers import ProgressObserver
from eunomia_testbed.simulator.options import Progress, SimulationOptions
from eunomia_testbed.simulator.run import SimulatedRun
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
    registry: Registry | None = None,
) -> SimulatedRun:
    """Simulate a workload under one profile, driving the arbiter of the live cluster in virtual time.

    Args:
        workload: the jobs and their arrivals.
        cluster: the machines and GPUs.
        profile: the plugins that decide.
        options: costs, failures, reports, rules, and the logs to keep.
        models: speeds of models; None: those of the workload.
        seed: seed of all random draws.
        progress: called from time to time with the progress of the run.
        registry: the available plugins; None: the profile's.

    Returns:
        The run; equal arguments give equal runs, except for ``timings``.

    Raises:
        InputError: invalid options, or a cluster that does not suit the profile.
        EunomiaError: the policy makes no progress.
    """
    observers = () if progress is None else (ProgressObserver(progress),)
    engine = assemble(
        workload, cluster, profile, options, models=models, seed=seed, registry=registry, observers=observers
    )
    return engine.run()
