"""The claims that share the GPUs of a round, with their jobs."""

from typing import NamedTuple

import numpy as np

from eunomia import Claims, Menus, Offer, Snapshot, Unit
from eunomia.contract.pools import owners
from eunomia.units import NONE, Ints, Reals, Rows
from eunomia_plugins.refine.apportion import NO_JOB
from eunomia_plugins.refine.turns import free_by_type, longest_waiting, owner_of
from eunomia_plugins.type_rates import rates_by_type


class View(NamedTuple):
    """The present claims and their jobs."""

    jobs: Rows
    """Rows of the candidates that belong to a claim."""
    owner: Ints
    """[candidate] index of its claim."""
    kind: Rows
    """[candidate] requested GPU type; -1: any."""
    size: Ints
    """[candidate] smallest size."""
    turns: list[list[int]]
    """[claim] indices of its jobs, longest waiting first."""
    free: Ints
    """[type] number of GPUs that the candidates may get."""
    demand: Ints
    """[claim] number of GPUs that its active jobs can use together."""
    offered_demand: Ints
    """[claim] number of GPUs that its candidates can use together."""
    kept: Ints
    """[claim, type] GPUs that the claim holds outside the offer."""
    gang: Ints
    """[claim, type] smallest size of its candidates that may run on the type; ``NO_JOB`` if there is none.
    """
    speed: Reals
    """[claim, type] mean speed of its active jobs, each relative to its own fastest type; equal if none is known."""
    held: Rows
    """[candidate] GPU type of most of its GPUs; -1: it holds none."""
    held_by_claim: Ints
    """[claim, type] number of GPUs held by its active jobs."""


def view_of(snapshot: Snapshot, menus: Menus, offer: Offer, claims: Claims) -> View:
    """Return the claims of an allocation and their jobs."""
    of_active = owner_of(snapshot, claims, snapshot.active)
    most = menus.span(snapshot.active)[1]
    held = _held(snapshot)
    count, types = claims.rows.size, len(snapshot.cluster.gpu_types)
    demand = np.bincount(of_active[of_active >= 0], weights=most[of_active >= 0], minlength=count)
    owner = owner_of(snapshot, claims, offer.candidates)
    jobs, owner = offer.candidates[owner >= 0], owner[owner >= 0]
    size, largest = menus.span(jobs)
    shape = (count, types)
    kind = snapshot.jobs.gpu_type[jobs]
    return View(
        jobs=jobs,
        owner=owner,
        kind=kind,
        size=size,
        turns=_turns(longest_waiting(snapshot, jobs), owner, count),
        free=free_by_type(snapshot, offer, jobs),
        demand=demand.astype(np.int64),
        offered_demand=np.bincount(owner, weights=largest, minlength=count).astype(np.int64),
        kept=_kept(snapshot, offer, claims),
        gang=_gangs(size, kind, owner, shape),
        speed=_speeds(menus, snapshot.active, most, of_active, shape),
        held=np.where(held[jobs].any(axis=1), held[jobs].argmax(axis=1), NONE).astype(np.int32),
        held_by_claim=_by_claim(held[snapshot.active], of_active, shape),
    )


def summed(granted: Ints, owner: Ints, claims: int) -> Reals:
    """Return the GPUs of each claim, [claim, type], summed over its jobs."""
    found = np.zeros((claims, granted.shape[1]))
    np.add.at(found, owner, granted)
    return found


def _turns(ranked: Ints, owner: Ints, claims: int) -> list[list[int]]:
    turns: list[list[int]] = [[] for _ in range(claims)]
    for index, claim in zip(ranked.tolist(), owner[ranked].tolist(), strict=True):
        turns[claim].append(index)
    return turns


def _kept(snapshot: Snapshot, offer: Offer, claims: Claims) -> Ints:
    gpus = np.setdiff1d(np.arange(snapshot.cluster.gpus), offer.gpus)
    holder = owners(snapshot, gpus, Unit.JOB)
    gpus, holder = gpus[holder >= 0], holder[holder >= 0]
    mine = owner_of(snapshot, claims, holder)
    kept = np.zeros((claims.rows.size, len(snapshot.cluster.gpu_types)), np.int64)
    np.add.at(kept, (mine[mine >= 0], snapshot.cluster.gpu_type[gpus[mine >= 0]]), 1)
    return kept


def _held(snapshot: Snapshot) -> Ints:
    """Return the GPUs that each job holds, [job row, type]."""
    gpus = np.arange(snapshot.cluster.gpus)
    holder = owners(snapshot, gpus, Unit.JOB)
    gpus, holder = gpus[holder >= 0], holder[holder >= 0]
    found = np.zeros((snapshot.jobs.app.size, len(snapshot.cluster.gpu_types)), np.int64)
    np.add.at(found, (holder, snapshot.cluster.gpu_type[gpus]), 1)
    return found


def _by_claim(held: Ints, owner: Ints, shape: tuple[int, int]) -> Ints:
    found = np.zeros(shape, np.int64)
    np.add.at(found, owner[owner >= 0], held[owner >= 0])
    return found


def _speeds(menus: Menus, jobs: Rows, most: Ints, owner: Ints, shape: tuple[int, int]) -> Reals:
    """Return the mean speeds of claims, [claim, type], rounded so that equal ones compare equal."""
    if shape[1] == 1:
        return np.ones(shape)
    jobs, most, owner = jobs[owner >= 0], most[owner >= 0], owner[owner >= 0]
    rate = rates_by_type(menus, jobs, most, shape[1])
    rate = rate / np.maximum(rate.max(axis=1, keepdims=True, initial=0.0), 1e-300)
    found = np.zeros(shape)
    np.add.at(found, owner, rate)
    count: Reals = np.maximum(np.bincount(owner, minlength=shape[0]), 1)[:, None].astype(float)
    speed: Reals = np.round(found / count, 9)
    return speed


def _gangs(size: Ints, kind: Rows, owner: Ints, shape: tuple[int, int]) -> Ints:
    gang = np.full(shape, NO_JOB)
    for each in range(shape[1]):
        may = (size > 0) & ((kind == NONE) | (kind == each))
        np.minimum.at(gang[:, each], owner[may], size[may])
    return gang
