"""Helpers for allocations: candidates in the order of a valuation, and reasons for jobs that get no GPUs."""

import numpy as np

from eunomia import Cause, Claims, Reason, Scores, Snapshot, Unit
from eunomia.model.workload import Jobs
from eunomia.units import Ints, Rows

EVENTS = frozenset({Cause.ARRIVED, Cause.FREED, Cause.LEASE_ENDED, Cause.CLUSTER_CHANGED})
"""Causes of rounds in which an allocation by order may change."""


def ranked(snapshot: Snapshot, candidates: Rows, scores: Scores, claims: Claims) -> Rows:
    """Return the candidates in order of service; those that the valuation does not name come last, by arrival.

    Jobs of the same app or user, if these are the claims, are ordered by arrival.
    """
    ranking = scores.ranking()
    if claims.unit is Unit.JOB and claims.rows is candidates:
        return candidates[ranking]
    owner = candidates
    if claims.unit is not Unit.JOB:
        owner = snapshot.jobs.app[candidates]
    if claims.unit in (Unit.USER, Unit.GROUP):
        owner = snapshot.apps.user[owner]
    place = np.full(1 + max(int(owner.max(initial=0)), int(claims.rows.max(initial=0))), ranking.size, np.int64)
    place[claims.rows[ranking]] = np.arange(ranking.size)
    return candidates[np.lexsort((snapshot.jobs.arrived[candidates], place[owner]))]


def reasons(least: Ints, kind: Rows, capacity: Ints) -> Rows:
    """Return the reason of each job if it gets no GPUs: the cluster is too small for it, or it is outranked.

    Args:
        least: [job] smallest size on its menu; 0: it has no menu.
        kind: [job] requested GPU type; -1: any.
        capacity: [type] number of GPUs of the cluster.
    """
    limit = np.append(capacity, capacity.max(initial=0))[kind]
    limit[kind < -1] = 0  # a type that the cluster does not have
    why = np.full(least.size, int(Reason.OUTRANKED), np.int32)
    why[(least <= 0) | (least > limit)] = int(Reason.NO_SIZE_FITS)
    why[limit == 0] = int(Reason.NO_GPU_OF_TYPE)
    return why


def in_turn(snapshot: Snapshot, jobs: Rows, gpus: Ints, chosen: Ints, *, stop: bool) -> Rows:
    """Return the order in which served jobs choose their GPUs.

    As all of them are served, the largest gangs choose first, ties by arrival, so that placement does not depend on
    ranks. Ranks decide if CPUs or memory may run short, or if the first job that cannot be placed ends the
    service.

    Args:
        snapshot: the current state.
        jobs: job rows.
        gpus: [job] number of GPUs.
        chosen: indices of jobs that get GPUs, in order of service.
        stop: whether the first job that cannot be placed ends the service.
    """
    if chosen.size < 2:
        return chosen.astype(np.int32)
    table = snapshot.jobs
    order = table.arrived if snapshot.arrivals is None else snapshot.arrivals
    named = jobs[chosen]
    if stop or asks(table, named):
        return chosen.astype(np.int32)
    return chosen[np.lexsort((order[named], -gpus[chosen]))].astype(np.int32)


def asks(table: Jobs, jobs: Rows | list[int]) -> bool:
    """Return whether any of these jobs requests CPUs or memory."""
    return not (np.isnan(table.cpus[jobs]).all() and np.isnan(table.memory_gib[jobs]).all())
