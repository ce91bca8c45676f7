"""One workload under one profile."""

from collections.abc import Callable

from eunomia.cluster import Cluster
from eunomia.profiles import Profile
from eunomia.registry import Registry
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.simulator.engine import Engine
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
        workload: what arrives.
        cluster: where it runs.
        profile: who decides, and when.
        options: costs, failures, reports, rules, and what is kept.
        models: how fast models are; None: as the workload tells.
        seed: all randomness follows from it.
        progress: told from time to time how far the run is.
        registry: the plugins that there are; None: the profile's.

    Returns:
        The run; equal arguments give equal runs, but for its ``timings``.

    Raises:
        InputError: options that cannot be, or a cluster that does not suit the profile.
        EunomiaError: the policy makes no progress.
    """
    engine = Engine(workload, cluster, profile, options, models=models, seed=seed, progress=progress, registry=registry)
    return engine.run()
