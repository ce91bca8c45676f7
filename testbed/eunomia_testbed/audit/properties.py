"""Judges one allocation: sharing incentive, envy-freeness, Pareto efficiency, work conservation, efficiency."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from eunomia.units import Reals
from eunomia_testbed.audit.instances import AuditInstance, Table
from eunomia_testbed.audit.policy import Received
from eunomia_testbed.audit.programmes import dominating, optimum
from eunomia_testbed.audit.violations import Property

NOTHING: Final = 1e-4
"""Largest size of a violation that is ignored, well above the solvers' error of about a millionth."""


class Judged(NamedTuple):
    """The size of a violation, the users concerned, and the allocation that proves it, if there is one."""

    size: float
    users: tuple[int, ...] = ()
    other: Table | None = None


def sharing_incentive(instance: AuditInstance, outcome: Received) -> Judged:
    """Return how far the worst-off user's throughput is below its equal share, as a fraction of it (OEF, §2.3)."""
    share = instance.equal_share()
    lacks = 1.0 - instance.throughput(outcome.gpus) / np.maximum(share, 1e-12)
    worst = int(lacks.argmax())
    return Judged(float(lacks[worst]), (worst,))


def envy_freeness(instance: AuditInstance, outcome: Received) -> Judged:
    """Return the largest gain, in equal shares, of a user with another's GPUs, scaled by the ratio of their weights."""
    own, share = instance.throughput(outcome.gpus), np.maximum(instance.equal_share(), 1e-12)
    worst = Judged(0.0)
    for user in range(instance.users):
        for other in range(instance.users):
            scaled = outcome.gpus[other] * (instance.weight[user] / instance.weight[other])
            gain = (instance.throughput_of(user, scaled) - own[user]) / share[user]
            if user != other and gain > worst.size:
                worst = Judged(float(gain), (user, other))
    return worst


def pareto_efficiency(instance: AuditInstance, outcome: Received) -> Judged:
    """Return the largest total gain in throughput, in equal shares, of an allocation in which no user gets less."""
    own, share = instance.throughput(outcome.gpus), np.maximum(instance.equal_share(), 1e-12)
    best = dominating(instance, own, whole=outcome.whole)
    gain = (best.throughput - own) / share
    users = tuple(np.flatnonzero(gain > NOTHING / instance.users).tolist())
    return Judged(float(gain.sum()), users, table(best.gpus))


def work_conservation(instance: AuditInstance, outcome: Received) -> Judged:
    """Return the fraction of the GPUs that are idle although a user has a waiting job that could run on them."""
    idle = np.maximum(np.array(instance.gpus, float) - outcome.gpus.sum(axis=0), 0.0)
    left = np.array(instance.jobs, float) - outcome.gpus.sum(axis=1)
    runs = instance.speeds() > 0.0
    usable = [min(float(idle[kind]), float(left[runs[:, kind]].clip(0.0).sum())) for kind in range(instance.types)]
    users = tuple(np.flatnonzero((left > NOTHING) & (runs & (idle > NOTHING)).any(axis=1)).tolist())
    return Judged(min(sum(usable), float(left.clip(0.0).sum())) / sum(instance.gpus), users)


def efficiency(instance: AuditInstance, outcome: Received) -> Judged:
    """Return the relative shortfall of the sum of throughputs from the greatest possible sum."""
    best = optimum(instance, whole=outcome.whole)
    missing = 1.0 - float(instance.throughput(outcome.gpus).sum()) / max(float(best.throughput.sum()), 1e-12)
    return Judged(missing, (), table(best.gpus))


Judge = Callable[[AuditInstance, Received], Judged]
JUDGES: Final[Mapping[Property, Judge]] = {
    Property.SHARING_INCENTIVE: sharing_incentive,
    Property.ENVY_FREE: envy_freeness,
    Property.PARETO_EFFICIENT: pareto_efficiency,
    Property.WORK_CONSERVING: work_conservation,
    Property.EFFICIENT: efficiency,
}


def table(gpus: Reals) -> Table:
    """Return an array as rows of plain numbers."""
    return tuple(map(tuple, gpus.tolist()))
