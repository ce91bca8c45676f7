"""Runs one round of the arbiter on an instance, and reads the GPUs that each user receives."""

import dataclasses
import math
from typing import Final

import numpy as np

from eunomia.arbiter import Arbiter
from eunomia.contract.allocations import Allocation, DeviceShares, Grants, TimeShares
from eunomia.contract.claims import Claims
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded, RateMeasured
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import AllocationStage, Stages
from eunomia.contract.valuations import Valuations
from eunomia.errors import EunomiaError, RunErrors
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Locality, Reals, Seconds, Unit, UserId
from eunomia_testbed.audit.instances import AuditInstance, Table

WORK: Final = 1e6
"""Iterations of each job, so many that no job ends in an audit."""
SMALLEST: Final = AuditInstance(speedup=((1.0, 1.5), (1.0, 1.5)), weight=(1.0, 1.0), gpus=(2, 2), jobs=(4, 4))
"""An instance of identical users, which shows whether a policy grants whole GPUs or shares."""


@builds
class Received:
    """The GPUs that users receive.

    Attributes:
        gpus: [user, type] GPUs.
        whole: whether the allocation granted whole GPUs; else they are shares, before refiners round them.
    """

    gpus: Reals
    whole: bool


class AuditedPolicy:
    """A profile under audit: it runs single rounds on instances, and reports the GPUs that users receive.

    Args:
        profile: any profile.
        seed: seed of the policy's own draws.
    """

    def __init__(self, profile: Profile, seed: int = 0) -> None:
        self.profile = profile
        self.seed = seed
        self.rounds = 0
        """Number of rounds run so far."""
        self._clusters: dict[tuple[int, ...], tuple[Cluster, Stages]] = {}
        self.whole = self.outcome(SMALLEST).whole
        """Whether the policy grants whole GPUs."""

    def outcome(self, instance: AuditInstance, reports: Table | None = None) -> Received:
        """Return the GPUs that users receive for some reported speedups; None: they report the true ones.

        Raises:
            InputErrors: a cluster of these GPUs does not suit the profile.
            RunErrors: a stage failed.
        """
        cluster, fallback = self._cluster(instance.gpus)
        stages = self.profile.stages(cluster)
        watch = _Watch(stages.allocation)
        arbiter = Arbiter(cluster, dataclasses.replace(stages, allocation=watch), fallback, seed=self.seed)
        decision = arbiter.step(Seconds(0.0), events_of(instance, reports or instance.speedup))
        if not decision.causes and math.isfinite(decision.wake_at):  # arrivals wait for the next regular round
            decision = arbiter.step(decision.wake_at, [])
        self.rounds += 1
        _check(decision, self.profile.name)
        if watch.shares is not None:
            return Received(gpus=_padded(watch.shares, instance), whole=False)
        return Received(gpus=_granted(decision, cluster, instance), whole=True)

    def _cluster(self, gpus: tuple[int, ...]) -> tuple[Cluster, Stages]:
        if gpus not in self._clusters:
            cluster = cluster_of(gpus)
            self._clusters[gpus] = cluster, Profile.fallback(registry=self.profile.registry).stages(cluster)
        return self._clusters[gpus]


def cluster_of(gpus: tuple[int, ...]) -> Cluster:
    """Return a cluster with one machine for each GPU type, named ``type1`` and so on."""
    return Cluster.parse(", ".join(f"1x{count} type{kind + 1} 64cpu 256GB" for kind, count in enumerate(gpus)))


def user_name(user: int) -> str:
    """Return the name of the user with this index, which is also the name of its app."""
    return f"user{user + 1}"


def events_of(instance: AuditInstance, reports: Table) -> list[Event]:
    """Return events in which all users arrive with one app each, whose jobs report a rate on every GPU type."""
    events: list[Event] = []
    for user in range(instance.users):
        app = AppId(user_name(user))
        weight = instance.weight[user]
        events.append(
            AppArrived(app=app, user=UserId(user_name(user)), weight=weight, user_weight=weight, divides=False)
        )
        for number in range(instance.jobs[user]):
            job = JobId(f"{app}/{number}")
            events.append(JobAdded(job=job, app=app, iterations=WORK, seconds_per_iteration=1.0, kind=app))
            events += [_rate(job, kind, rate) for kind, rate in enumerate(reports[user])]
    return events


def _rate(job: JobId, kind: int, rate: float) -> RateMeasured:
    return RateMeasured(job=job, gpus=1, locality=Locality.ISLAND, rate=rate, gpu_type=f"type{kind + 1}")


class _Watch:
    """A wrapper around the allocation stage that records the shares that the stage returns."""

    def __init__(self, stage: AllocationStage) -> None:
        self._stage = stage
        self.shares: dict[str, Reals] | None = None

    def __call__(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        answer = self._stage(snapshot, menus, offer, valuations)
        shares = _shares(snapshot, menus, answer)
        if shares is not None:
            self.shares = shares
        return answer


def _shares(snapshot: Snapshot, menus: Menus, answer: Allocation) -> dict[str, Reals] | None:
    """Convert shares of time or devices to GPUs by user and type; None: the stage granted whole GPUs."""
    amount = answer.amount
    if isinstance(amount, Grants):
        return None
    each = amount.gpus if isinstance(amount, DeviceShares) else _time(menus, answer.claims, amount)
    found: dict[str, Reals] = {}
    for row, user in zip(each, _users(snapshot, answer.claims), strict=True):
        found[user] = found.get(user, np.zeros(row.size)) + row
    return found


def _time(menus: Menus, claims: Claims, amount: TimeShares) -> Reals:
    sizes = menus.span(claims.rows)[1] if claims.unit is Unit.JOB else np.ones(claims.rows.size)
    found: Reals = amount.share * np.asarray(sizes, float)[:, None]
    return found


def _users(snapshot: Snapshot, claims: Claims) -> list[str]:
    rows = claims.rows
    if claims.unit is Unit.JOB:
        rows = snapshot.jobs.app[rows]
    if claims.unit in (Unit.JOB, Unit.APP):
        rows = snapshot.apps.user[rows]
    return [str(name) for name in snapshot.users.id[rows].tolist()]


def _padded(shares: dict[str, Reals], instance: AuditInstance) -> Reals:
    none = np.zeros(instance.types)
    return np.array([shares.get(user_name(user), none) for user in range(instance.users)])


def _granted(decision: Decision, cluster: Cluster, instance: AuditInstance) -> Reals:
    """Return [user, type] the number of GPUs that the decision grants; an app has the name of its user."""
    rows = {user_name(user): user for user in range(instance.users)}
    found = np.zeros((instance.users, instance.types))
    for order in decision.transitions:
        found[rows[str(order.app)]] += np.bincount(cluster.gpu_type[order.gpus], minlength=instance.types)
    return found


def _check(decision: Decision, profile: str) -> None:
    for fault in decision.faults:
        rule = "a profile that is audited must make its rounds without a fault"
        what = f'a fault of "{fault.plugin}": {fault.what}'
        raise RunErrors([EunomiaError(rule, value=what, place=profile)])
