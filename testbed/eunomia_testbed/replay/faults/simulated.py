"""The faults of a replay in its simulation.

A killed worker costs its job the work since its last checkpoint and a start; a stopped one costs the time in which its
gang makes no steps. Kills of app masters, arbiter and launcher are left out of the simulation: they cost no work, since
workers keep training.
"""

import dataclasses
from typing import Final

from eunomia.units import parse_duration
from eunomia_testbed.replay.app_files import CHECKPOINT_EVERY
from eunomia_testbed.replay.faults.plan import MOST_OF_ONE_JOB, OF_WORKERS, FaultPlan
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.simulator import Failures, WorkerFault

RETRY_SECONDS: Final = 1.0
"""Seconds before a job's first retry, as in a live app master."""


def with_faults(plan: Plan, faults: FaultPlan | None) -> Plan:
    """Return a plan of simulations with the worker faults of a replay.

    Args:
        plan: the simulations.
        faults: faults of a replay; None: the plan is returned unchanged.
    """
    if faults is None:
        return plan
    of_workers = tuple(
        WorkerFault(
            time_seconds=fault.at_seconds,
            draw=fault.draw,
            stands_seconds=fault.lasts_seconds or RETRY_SECONDS,
            kills=fault.lasts_seconds == 0.0,
        )
        for fault in faults.faults
        if fault.kind in OF_WORKERS
    )
    failures = Failures(
        worker_faults=of_workers,
        most_worker_faults=MOST_OF_ONE_JOB,
        checkpoint_every_seconds=float(parse_duration(CHECKPOINT_EVERY, name="checkpoint_every", place="")),
    )
    return dataclasses.replace(plan, options=dataclasses.replace(plan.options, failures=failures))
