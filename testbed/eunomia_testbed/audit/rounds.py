"""Runs a profile on an instance over simulated rounds, and computes the GPU time that users received."""

from typing import Final

import numpy as np

from eunomia.errors import EunomiaError, RunErrors
from eunomia.model.shapes import value
from eunomia.units import Reals
from eunomia_testbed.audit.instances import AuditInstance, Table
from eunomia_testbed.audit.policy import AuditedPolicy, Received, cluster_of, user_name
from eunomia_testbed.performance import DeclaredModel, DeclaredSpeeds
from eunomia_testbed.simulator.logs.run import SimulatedRun
from eunomia_testbed.simulator.options import Keep, Reports, SimulationOptions
from eunomia_testbed.simulator.simulate import simulate_one
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.workload import AppColumns, JobColumns, UserColumns

ROUND: Final = 360.0
"""Longest time between rounds that an audit simulates, in seconds."""
ROUNDS: Final = 60
"""Number of rounds to simulate if jobs do not end."""
SHARED_ROUNDS: Final = 20
"""Number of rounds that each user's work takes on an equal share of the cluster, if jobs end."""
NOWHERE: Final = 1e-9
"""Speed declared for types on which a job cannot run, since a speed must be positive."""


@value
class OverTime:
    """The users' finish times and GPU time over a run, compared with their shares.

    Attributes:
        rho: [user] finish time over the time that the work takes on an equal share of the cluster.
        deviation: fraction of the GPU time that went to other users than under ideal shares, which are those of the
            allocation before rounding, or equal shares for a policy that grants whole GPUs.
    """

    rho: tuple[float, ...]
    deviation: float

    @property
    def above_1(self) -> float:
        """Return the fraction of users with rho above 1."""
        return sum(each > 1.0 for each in self.rho) / len(self.rho)


def round_seconds(policy: AuditedPolicy) -> float:
    """Return the seconds between the profile's rounds, or its lease if that is shorter; at most 360."""
    rounds = policy.profile.rounds
    given = (each for each in (rounds.every, rounds.lease) if each is not None and each > 0.0)
    return min([ROUND, *map(float, given)])


def received(policy: AuditedPolicy, instance: AuditInstance, reports: Table | None = None) -> Received:
    """Return [user, type] the mean number of GPUs that users held over 60 rounds in which no job ends.

    Args:
        policy: the profile.
        instance: the instance with true speedups.
        reports: the speedups that users report; None: the true ones.
    """
    horizon = ROUNDS * round_seconds(policy)
    run = _run(policy, instance, np.full(instance.users, 1e12), reports, until=horizon)
    return Received(gpus=_held(run, instance, horizon) / horizon, whole=False)


def over_time(policy: AuditedPolicy, instance: AuditInstance, time_received: Received) -> OverTime:
    """Return how late users with limited work finish, and how far the time received is from ideal shares.

    Args:
        policy: the profile.
        instance: the instance.
        time_received: the result of ``received`` for honest users.
    """
    share, seconds = instance.equal_share(), SHARED_ROUNDS * round_seconds(policy)
    run = _run(policy, instance, share * seconds / np.array(instance.jobs), None, until=40.0 * seconds)
    finish = np.nan_to_num(run.app_finish_seconds, nan=np.inf)
    part = np.array(instance.weight)[:, None] / sum(instance.weight)
    ideal = part * np.array(instance.gpus, float) if policy.whole else policy.outcome(instance).gpus
    moved = np.abs(time_received.gpus - ideal).sum() / 2.0
    return OverTime(rho=tuple((finish / seconds).tolist()), deviation=float(moved / sum(instance.gpus)))


def _run(
    policy: AuditedPolicy, instance: AuditInstance, iterations: Reals, reports: Table | None, *, until: float
) -> SimulatedRun:
    """Simulate a policy that is given the true rates, or the rates that users report.

    Raises:
        RunErrors: a stage failed.
    """
    lies = {} if reports is None else _factors(instance, reports)
    options = SimulationOptions(
        reports=Reports(know="oracle", type_lies=lies),
        until=until,
        keep=Keep(rounds=False, waits=False, queue=False, records=False, timings=False),
    )
    try:
        return simulate_one(
            _workload(instance, iterations),
            cluster_of(instance.gpus),
            policy.profile,
            options=options,
            models=_speeds(instance),
            seed=policy.seed,
        )
    except EunomiaError as error:
        raise RunErrors([error]) from error


def _factors(instance: AuditInstance, reports: Table) -> dict[str, dict[str, float]]:
    """Return for each app and GPU type the factor of the reported over the true rate, where both differ."""
    pairs = enumerate(zip(instance.speedup, reports, strict=True))
    return {
        user_name(user): {
            f"type{kind + 1}": stated / true
            for kind, (true, stated) in enumerate(zip(truth, row, strict=True))
            if true > 0.0 and stated != true
        }
        for user, (truth, row) in pairs
        if truth != row
    }


def _workload(instance: AuditInstance, iterations: Reals) -> Workload:
    """Return a workload in which all users arrive at time 0 with one app each; the jobs of an app are equal."""
    users, jobs = instance.users, np.array(instance.jobs)
    names, owner = [user_name(user) for user in range(users)], np.repeat(np.arange(users), jobs)
    number = np.concatenate([np.arange(count) for count in jobs])
    weight = np.array(instance.weight)
    one = np.ones(owner.size, np.int64)
    return Workload(
        name=f"audit-{instance.source}",
        users=UserColumns(id=names, weight=weight),
        apps=AppColumns(id=names, user=np.arange(users), weight=weight, arrival_seconds=np.zeros(users)),
        jobs=JobColumns(
            id=[f"{names[user]}/{at}" for user, at in zip(owner.tolist(), number.tolist(), strict=True)],
            app=owner,
            arrival_seconds=np.zeros(owner.size),
            least=one,
            most=one,
            iterations=iterations[owner],
            seconds_per_iteration=np.full(owner.size, np.nan),
            model=owner,
        ),
        models=tuple(names),
        source="drawn by the auditor",
    )


def _speeds(instance: AuditInstance) -> DeclaredSpeeds:
    return DeclaredSpeeds(
        {
            user_name(user): DeclaredModel(
                speed={f"type{kind + 1}": max(speed, NOWHERE) for kind, speed in enumerate(row)}
            )
            for user, row in enumerate(instance.speedup)
        },
        place="the instance",
    )


def _held(run: SimulatedRun, instance: AuditInstance, horizon: float) -> Reals:
    """Return [user, type] GPU-seconds that users held until ``horizon``, in seconds."""
    cluster, leases = cluster_of(instance.gpus), run.leases
    end = np.minimum(np.where(np.isnan(leases.end_seconds), horizon, leases.end_seconds), horizon)
    found = np.zeros((instance.users, instance.types))
    np.add.at(found, (leases.app, cluster.gpu_type[leases.gpu].astype(np.int64)), end - leases.start_seconds)
    return found
