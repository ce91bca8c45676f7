"""Appendix A: two jobs on two GPUs, either one after the other by remaining time, or with equal shares."""

import math
from typing import Final

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia_testbed.performance import AfsScaling
from eunomia_testbed.performance.curves import Curve
from eunomia_testbed.reproduce.afs.cells import POLICIES
from eunomia_testbed.reproduce.recipes import Recipe, run_profile
from eunomia_testbed.simulator import Reports, SimulationOptions, simulate_one
from eunomia_testbed.workload import Workload

HOURS: Final = {"A": (2.0, 1.0), "B": (2.0, 1.5)}
"""Hours that each job takes on one GPU and on two."""
STEPS: Final = 7200.0


def two_jobs(policy: str) -> tuple[float, ...]:
    """Return the completion times in hours of jobs A and B, which arrive together on two GPUs.

    Args:
        policy: a name of ``policies.toml``.
    """
    curves = {
        name: Curve.of({gpus: STEPS / (3600.0 * hours) for gpus, hours in enumerate(each, start=1)}, of_times=True)
        for name, each in HOURS.items()
    }
    workload = Workload.single_jobs(
        "two jobs of Appendix A",
        ids=list(HOURS),
        arrival_seconds=np.zeros(len(HOURS)),
        gpus=np.full(len(HOURS), 2),
        least=np.ones(len(HOURS), np.int64),
        iterations=np.full(len(HOURS), STEPS),
        seconds_per_iteration=np.full(len(HOURS), math.nan),
        models=list(HOURS),
    )
    one = POLICIES[policy]
    run = simulate_one(
        workload,
        Cluster.parse("1x2 V100"),
        run_profile(Recipe(policy=policy, preset=one.preset, settings=one.settings)),
        options=SimulationOptions(reports=Reports(know=("sizes", "types"))),
        models=AfsScaling(curves, place="Appendix A"),
    )
    return tuple((run.finish_seconds / 3600.0).tolist())


def in_turn() -> dict[str, float]:
    """Return the mean JCT in hours if the shorter job gets both GPUs first."""
    return {"mean JCT": float(np.mean(two_jobs("srtf_max")))}


def equal_shares() -> dict[str, float]:
    """Return the mean JCT in hours if each job has one GPU from the start."""
    return {"mean JCT": float(np.mean(two_jobs("max_min")))}
