"""Cooperative OEF for many claims: those with nearly equal speedups get the same bundle of GPUs per unit of weight.

The programme then has a variable for each bundle and GPU type, whatever the number of claims. Each single claim, not
the mean of its group, must value its own bundle nearly as much as any other: the most violated of these rows are added
until none is violated. Each claim then joins the group whose bundle it prefers, and the programme is solved again.
There is always a solution, since every row holds if all claims get equal GPUs.
"""

import heapq
from typing import Final

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals
from eunomia_plugins.oef.groups import Groups
from eunomia_solvers import GrowingProgram, LinearProgram, SparseRows

BUNDLES: Final = 100
"""Maximum number of bundles."""
JOINS: Final = 3
"""Number of times that claims change groups and the programme is solved again; the best solution is kept."""
ADDED: Final = 8
"""Maximum number of rows added per group at a time."""
LEAST: Final = 1e-6
"""Relative excess of envy up to which a row counts as satisfied."""
SOLVES: Final = 80
"""Maximum number of programmes for one division into groups."""


@builds
class Bundles:
    """A division of claims into groups with one bundle each.

    Attributes:
        owner: [claim] index of its group.
        each: [group, type] GPUs per unit of weight.
        objective: sum over claims of speedup times GPUs.
        solves: number of linear programmes solved.
    """

    owner: Ints
    each: Reals
    objective: float
    solves: int


def solve_bundles(groups: Groups, *, envy: float, count: int = BUNDLES) -> Bundles:
    """Return bundles such that no claim would gain more than a fraction of its throughput with another bundle.

    Args:
        groups: claims that differ from each other, each able to run on a type that has GPUs.
        envy: the allowed fraction.
        count: maximum number of bundles.
    """
    best: Bundles | None = None
    owner, solves = nearly_equal(groups, count), 0
    for _ in range(JOINS):
        found = _solved(groups, owner, envy)
        solves += found.solves
        if best is None or found.objective > best.objective:
            best = found
        used, owner = np.unique((groups.speedup @ found.each.T).argmax(axis=1), return_inverse=True)
        owner = owner.ravel()
        if used.size == found.each.shape[0] and (owner == found.owner).all():
            break
    assigned = best if best is not None else _solved(groups, owner, envy)
    return Bundles(owner=assigned.owner, each=assigned.each, objective=assigned.objective, solves=solves)


def nearly_equal(groups: Groups, count: int) -> Ints:
    """Return the group of each claim, by repeatedly halving the group with the widest range of relative speeds.

    Args:
        groups: the claims.
        count: maximum number of groups.
    """
    shape = np.log(np.maximum(groups.speedup, 1e-9))
    shape -= shape.mean(axis=1, keepdims=True)
    whole = np.arange(shape.shape[0])
    queue = [(*_widest(shape, whole), 0, whole)]
    made = 1
    while len(queue) < count and queue[0][0] < 0.0:
        _, kind, _, members = heapq.heappop(queue)
        ranked = members[np.argsort(shape[members, kind], kind="stable")]
        for part in (ranked[: ranked.size // 2], ranked[ranked.size // 2 :]):
            heapq.heappush(queue, (*_widest(shape, part), made, part))
            made += 1
    owner = np.empty(whole.size, np.int64)
    for number, (*_, members) in enumerate(queue):
        owner[members] = number
    return owner


def certificate(groups: Groups, bundles: Bundles) -> tuple[float, float]:
    """Return the largest envy and the largest shortfall of any claim, as fractions.

    Envy is the gain of a claim with another's bundle over its own throughput. The shortfall is its deficit below the
    throughput of an equal share, over that throughput; it is negative if every claim has more than by an equal share.
    """
    with_bundle = groups.speedup @ bundles.each.T
    own = with_bundle[np.arange(bundles.owner.size), bundles.owner]
    fair = groups.speedup @ groups.gpus / groups.weight.sum()
    return float((with_bundle.max(axis=1) / own).max() - 1.0), float((1.0 - own / fair).max())


def _widest(shape: Reals, members: Ints) -> tuple[float, int]:
    """Return the widest range of relative speed among some claims, negated, and its type."""
    span = np.ptp(shape[members], axis=0)
    return -float(span.max()), int(span.argmax())


def weights_of(groups: Groups, owner: Ints) -> tuple[Reals, Reals]:
    """Return the weight of each group, [group], and the sum of its claims' speedup times weight, [group, type]."""
    count = int(owner.max()) + 1
    weight: Reals = np.bincount(owner, weights=groups.weight, minlength=count).astype(float)
    total = np.zeros((count, groups.gpus.size))
    np.add.at(total, owner, groups.speedup * groups.weight[:, None])
    return weight, total


def started(objective: Reals, weight: Reals, gpus: Reals) -> LinearProgram:
    """Return the programme over bundles with the capacity rows; variable ``group * types + type``.

    Args:
        objective: [group, type] gain in the objective by a GPU per unit of weight.
        weight: [group] weights.
        gpus: [type] number of GPUs.
    """
    count, types = objective.shape
    index = (np.arange(count)[None, :] * types + np.arange(types)[:, None]).ravel()
    rows = SparseRows(start=np.arange(types + 1) * count, index=index, value=np.tile(weight, types))
    free = np.full(types, -np.inf)
    return LinearProgram.of(objective.ravel(), rows=rows, row_lower=free, row_upper=gpus, maximise=True)


def preferences(mine: Reals, own: Ints, theirs: Reals, other: Ints) -> SparseRows:
    """Return rows ``mine . bundle[own] - theirs . bundle[other]``.

    Args:
        mine: [row, type] coefficients of the own bundle.
        own: [row] index of the own bundle.
        theirs: [row, type] coefficients of the other bundle.
        other: [row] index of the other bundle.
    """
    types = np.arange(mine.shape[1])
    index = np.concatenate([own[:, None] * types.size + types, other[:, None] * types.size + types], axis=1)
    value = np.concatenate([mine, -theirs], axis=1)
    return SparseRows(start=2 * types.size * np.arange(own.size + 1), index=index.ravel(), value=value.ravel())


def _solved(groups: Groups, owner: Ints, envy: float) -> Bundles:
    weight, total = weights_of(groups, owner)
    program = GrowingProgram(started(total, weight, groups.gpus), place="oef, cooperative")
    rows, order = np.arange(owner.size), np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(weight.size + 1))
    solves = 0
    while True:
        each, solves = program.solve().reshape(total.shape), solves + 1
        value = groups.speedup @ each.T
        own = value[rows, owner]
        excess = value - (1.0 + envy) * (1.0 + LEAST) * own[:, None] - 1e-9 * float(own.max())
        excess[rows, owner] = -np.inf
        claim, other = _worst(excess, order, starts)
        if not claim.size or solves == SOLVES:
            return Bundles(owner=owner, each=each, objective=float((total * each).sum()), solves=solves)
        speed = groups.speedup[claim]
        zeros, ends = np.zeros(claim.size), np.full(claim.size, np.inf)
        program.add(preferences((1.0 + envy) * speed, owner[claim], speed, other), zeros, ends)


def _worst(excess: Reals, order: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Return claims and the bundles that they prefer: for each group and other bundle, the most envious claim."""
    claims, others = [], []
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        members = order[first:last]
        part = excess[members]
        most = part.max(axis=0)
        far = np.argsort(-most, kind="stable")[:ADDED]
        far = far[most[far] > 0.0]
        claims.append(members[part[:, far].argmax(axis=0)])
        others.append(far)
    return np.concatenate(claims), np.concatenate(others)
