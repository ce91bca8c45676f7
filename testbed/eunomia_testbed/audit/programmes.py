"""The auditor's optimization problems: the allocation that dominates another, and the greatest sum of throughputs."""

from typing import NamedTuple

import numpy as np

from eunomia.units import Reals
from eunomia_solvers import LinearProgram, SparseRows, solve_linear
from eunomia_testbed.audit.instances import AuditInstance


class Best(NamedTuple):
    """An optimal allocation."""

    gpus: Reals
    """[user, type] GPUs of each user."""
    throughput: Reals
    """[user] throughput of each user."""


def dominating(instance: AuditInstance, least: Reals, *, whole: bool) -> Best:
    """Return the allocation with the greatest sum of throughputs (in equal shares) in which no user is below its bound.

    Args:
        instance: users and GPUs.
        least: [user] lower bound of the user's throughput.
        whole: whether users get whole GPUs only.
    """
    return _solved(instance, 1.0 / np.maximum(instance.equal_share(), 1e-12), least * (1.0 - 1e-9), whole=whole)


def optimum(instance: AuditInstance, *, whole: bool) -> Best:
    """Return the allocation with the greatest sum of throughputs, each relative to the user's slowest type."""
    return _solved(instance, np.ones(instance.users), None, whole=whole)


def _solved(instance: AuditInstance, value: Reals, least: Reals | None, *, whole: bool) -> Best:
    """Maximise the sum of value x throughput; variable ``user * types + type`` is the user's number of such GPUs."""
    users, types, speeds = instance.users, instance.types, instance.speeds()
    count = users * types
    blocks = [np.kron(np.ones((1, users)), np.eye(types)), np.kron(np.eye(users), np.ones((1, types)))]
    upper = [np.array(instance.gpus, float), np.array(instance.jobs, float)]
    lower = [np.full(types + users, -np.inf)]
    if least is not None:
        own = np.zeros((users, count))
        for user in range(users):
            own[user, user * types : (user + 1) * types] = speeds[user]
        blocks, upper, lower = [*blocks, own], [*upper, np.full(users, np.inf)], [*lower, least]
    program = LinearProgram.of(
        (speeds * value[:, None]).ravel(),
        rows=SparseRows.dense(np.vstack(blocks)),
        row_lower=np.concatenate(lower),
        row_upper=np.concatenate(upper),
        integral=whole,
        maximise=True,
    )
    gpus = solve_linear(program, place="audit").x.reshape(users, types)
    return Best(gpus=gpus, throughput=(speeds * gpus).sum(axis=1))
