"""Cooperative OEF for many claims: those with nearly equal speedups get equal GPUs per unit of weight, a bundle.

The programme then has a variable for each bundle and GPU type, whatever the number of claims. Each claim itself, not
the mean of its group, must have nearly as much by its own bundle as by any other: of these rows, the ones that a
solution breaks most are added until it breaks none. Each claim then joins the group whose bundle it likes best, and
the programme is solved again. With equal GPUs for all every row holds, so there is always a solution.
"""

import heapq
from typing import Final

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals
from eunomia_plugins.oef.groups import Groups
from eunomia_solvers import GrowingProgram, LinearProgram, SparseRows

BUNDLES: Final = 100
"""Greatest number of bundles."""
JOINS: Final = 3
"""Number of solves with other groups; the solution with the greatest objective is kept."""
ADDED: Final = 8
"""Greatest number of rows that are added for a group at a time."""
LEAST: Final = 1e-6
"""Relative excess of envy up to this value counts as none."""
SOLVES: Final = 80
"""Greatest number of programmes for one division into groups."""


@builds
class Bundles:
    """A division of claims into groups with one bundle each.

    Attributes:
        owner: [claim] its group.
        each: [group, type] GPUs per unit of weight.
        objective: the sum over claims of speedup times GPUs.
        solves: linear programmes solved.
    """

    owner: Ints
    each: Reals
    objective: float
    solves: int


def solve_bundles(groups: Groups, *, envy: float, count: int = BUNDLES) -> Bundles:
    """Return bundles at which no claim prefers another's by more than a fraction of its own throughput.

    Args:
        groups: claims that are not equal, each running on a type that has GPUs.
        envy: this fraction.
        count: greatest number of bundles.
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
    """Return [claim] its group: the group with the widest range of a type's relative speed is halved, again and again.

    Args:
        groups: the claims.
        count: greatest number of groups.
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
    """Return the greatest envy and the greatest shortfall, as fractions; both are computed claim by claim.

    Envy is what a claim would gain with another's bundle over its own throughput; the shortfall is what it lacks of
    the throughput of an equal share, over that throughput. Below 0: every claim has more than by an equal share.
    """
    with_bundle = groups.speedup @ bundles.each.T
    own = with_bundle[np.arange(bundles.owner.size), bundles.owner]
    fair = groups.speedup @ groups.gpus / groups.weight.sum()
    return float((with_bundle.max(axis=1) / own).max() - 1.0), float((1.0 - own / fair).max())


def _widest(shape: Reals, members: Ints) -> tuple[float, int]:
    """Return the widest range of any type among some claims, negated, and the type."""
    span = np.ptp(shape[members], axis=0)
    return -float(span.max()), int(span.argmax())


def weights_of(groups: Groups, owner: Ints) -> tuple[Reals, Reals]:
    """Return [group] weights, and [group, type] the sum over its claims of speedup times weight."""
    count = int(owner.max()) + 1
    weight: Reals = np.bincount(owner, weights=groups.weight, minlength=count).astype(float)
    total = np.zeros((count, groups.gpus.size))
    np.add.at(total, owner, groups.speedup * groups.weight[:, None])
    return weight, total


def started(objective: Reals, weight: Reals, gpus: Reals) -> LinearProgram:
    """Return the programme over bundles with the GPUs of each type; variable ``group * types + type``.

    Args:
        objective: [group, type] what a GPU per unit of weight adds.
        weight: [group].
        gpus: [type].
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
        own: [row] its number.
        theirs: [row, type] coefficients of the other bundle.
        other: [row] its number.
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
    """Return claims and bundles that they prefer: for a group and another bundle the claim that prefers it most."""
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
