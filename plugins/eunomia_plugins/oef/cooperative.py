"""Cooperative OEF (10a to 10c): maximise throughput such that no claim envies another's GPUs.

The programme has an envy row for each pair of claims, of which few are binding. It starts with the pairs of claims with
the most similar speedups. The most violated rows are added, and rows far from binding are dropped, until no row is
violated. As dropping rows can only raise the optimum, the solution is then optimal for all rows, and the last objective
is also the upper bound. Each solve starts from the previous basis.
"""

from typing import Final

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.envy_bounds import quick_bound
from eunomia_plugins.oef.groups import Groups
from eunomia_plugins.oef.near_equal import certificate, nearly_equal, solve_bundles
from eunomia_solvers import GrowingProgram, LinearProgram, SparseRows

NEIGHBOURS: Final = 8
"""Number of claims with similar speedups for which each claim has an initial row."""
ADDED: Final = 8
"""Maximum number of rows added per claim at a time: those with the most envy."""
EVERY: Final = 2
"""Number of solves after which rows are dropped."""
FAR: Final = 0.01
"""A row is dropped if its slack exceeds this fraction of the largest throughput per unit of weight."""
MOST: Final = 600
"""Maximum number of unequal claims for an exact solution, which takes half a minute of CPU time at this size and grows
faster than cubically. More claims are solved by bundles."""
ALMOST: Final = 0.02
"""Envy allowed per claim if there are more than ``MOST``, as a fraction of its throughput."""
BOUND_GROUPS: Final = 200
"""Number of groups in the programme that bounds the objective if there are more than ``MOST`` claims."""
ENVY: Final = 1e-9
"""Relative envy up to which a claim counts as free of envy."""


def solve_cooperative(groups: Groups) -> Answer:
    """Solve (10a to 10c) with weights: no claim prefers the GPUs of another claim, both per unit of weight.

    With more than ``MOST`` claims, nearly equal ones get equal GPUs per unit of weight, with envy up to ``ALMOST``.

    Args:
        groups: claims that differ from each other, each able to run on a type that has GPUs.
    """
    return solve_exactly(groups) if groups.weight.size <= MOST else solve_nearly(groups)


def solve_nearly(groups: Groups) -> Answer:
    """Solve by bundles of nearly equal claims, and compute envy, shortfall and a bound on the objective."""
    found = solve_bundles(groups, envy=ALMOST)
    envies, shortfall = certificate(groups, found)
    bound, _ = quick_bound(groups, nearly_equal(groups, BOUND_GROUPS))
    return Answer(
        gpus=found.each[found.owner] * groups.weight[:, None],
        objective=found.objective,
        bound=bound,
        path="bundles of nearly equal claims",
        rounds=found.solves,
        envy=envies,
        shortfall=shortfall,
        bundles=found.each.shape[0],
    )


def solve_exactly(groups: Groups) -> Answer:
    """Solve exactly by row generation: envy rows are added only for pairs of claims that need them.

    Args:
        groups: claims that differ from each other, each able to run on a type that has GPUs.
    """
    pairs, types = _neighbours(groups), groups.gpus.size
    program = GrowingProgram(_started(groups, pairs), place="oef, cooperative")
    rounds, last = 0, np.inf
    while True:
        gpus, rounds = program.solve().reshape(groups.speedup.shape), rounds + 1
        objective = float((groups.speedup * gpus).sum())
        gain = envy(groups, gpus)
        more = _envious(groups, gpus, gain, pairs)
        if not more.size:
            return Answer(
                gpus=gpus,
                objective=objective,
                bound=objective,
                path="rows by envy",
                rounds=rounds,
                envy=_relative(groups, gpus, gain),
                shortfall=_shortfall(groups, gpus),
            )
        if rounds % EVERY == 0 and objective < last * (1.0 - ENVY):  # else rows could be added and dropped endlessly
            far = np.flatnonzero(-gain[pairs[:, 0], pairs[:, 1]] > FAR * _greatest(groups, gpus))
            program.leave_out(far + types)
            pairs, last = np.delete(pairs, far, axis=0), objective
        program.add(_envy_rows(groups, more), np.zeros(len(more)), np.full(len(more), np.inf))
        pairs = np.vstack([pairs, more])


def envy(groups: Groups, gpus: Reals) -> Reals:
    """Return the gain in throughput per unit of weight with another's GPUs, [claim, other]; at most 0 without envy."""
    each = gpus / groups.weight[:, None]
    with_others = groups.speedup @ each.T
    found: Reals = with_others - np.diag(with_others)[:, None]
    return found


def _relative(groups: Groups, gpus: Reals, gain: Reals) -> float:
    """Return the largest gain as a fraction of the claim's own throughput, at least 0."""
    own = (groups.speedup * gpus).sum(axis=1) / groups.weight
    return max(0.0, float((gain.max(axis=1, initial=0.0) / own).max(initial=0.0)))


def _shortfall(groups: Groups, gpus: Reals) -> float:
    """Return the largest deficit of a claim below the throughput of an equal share, as a fraction of that."""
    fair = groups.speedup @ groups.gpus * groups.weight / groups.weight.sum()
    return float((1.0 - (groups.speedup * gpus).sum(axis=1) / fair).max())


def _neighbours(groups: Groups) -> Ints:
    """Return pairs of claims, [pair, 2]: each claim with those of the most similar relative speedups."""
    count = groups.weight.size
    most = min(NEIGHBOURS, count - 1)
    if most <= 0:
        return np.empty((0, 2), np.int64)
    shape = np.log(np.maximum(groups.speedup, 1e-9))
    shape -= shape.mean(axis=1, keepdims=True)
    square = (shape**2).sum(axis=1)
    apart = square[:, None] + square[None, :] - 2.0 * shape @ shape.T
    np.fill_diagonal(apart, np.inf)
    near = np.argpartition(apart, most - 1, axis=1)[:, :most]
    return np.column_stack([np.repeat(np.arange(count), most), np.sort(near, axis=1).ravel()])


def _greatest(groups: Groups, gpus: Reals) -> float:
    """Return the largest throughput per unit of weight, at least 1."""
    return max(1.0, float(((groups.speedup * gpus).sum(axis=1) / groups.weight).max(initial=0.0)))


def _envious(groups: Groups, gpus: Reals, gain: Reals, pairs: Ints) -> Ints:
    """Return the pairs with the most envy that have no row yet, [pair, 2], at most ``ADDED`` per claim."""
    gain = gain.copy()
    gain[pairs[:, 0], pairs[:, 1]] = -np.inf
    most = np.argpartition(-gain, min(ADDED, gain.shape[1] - 1), axis=1)[:, :ADDED]
    owner = np.repeat(np.arange(gain.shape[0]), most.shape[1])
    other = most.ravel()
    breaks = gain[owner, other] > ENVY * _greatest(groups, gpus)
    return np.column_stack([owner[breaks], other[breaks]])


def _started(groups: Groups, pairs: Ints) -> LinearProgram:
    """Return the programme with the capacity rows of all types and the envy rows of some pairs.

    Variable ``claim * types + type`` is the claim's number of GPUs of the type.
    """
    claims, types = groups.speedup.shape
    envies = _envy_rows(groups, pairs)
    index = (np.arange(claims)[None, :] * types + np.arange(types)[:, None]).ravel()
    rows = SparseRows(
        start=np.concatenate([np.arange(types) * claims, types * claims + envies.start]),
        index=np.concatenate([index, envies.index]),
        value=np.concatenate([np.ones(claims * types), envies.value]),
    )
    return LinearProgram.of(
        groups.speedup.ravel(),
        rows=rows,
        row_lower=np.concatenate([np.full(types, -np.inf), np.zeros(len(pairs))]),
        row_upper=np.concatenate([groups.gpus, np.full(len(pairs), np.inf)]),
        maximise=True,
    )


def _envy_rows(groups: Groups, pairs: Ints) -> SparseRows:
    """Return rows that are nonnegative if a claim does not envy another, both per unit of weight."""
    owner, other, types = pairs[:, 0], pairs[:, 1], groups.gpus.size
    each, kinds = groups.speedup[owner], np.arange(types)
    index = np.concatenate([owner[:, None] * types + kinds, other[:, None] * types + kinds], axis=1)
    value = np.concatenate([each / groups.weight[owner, None], -each / groups.weight[other, None]], axis=1)
    start = 2 * types * np.arange(owner.size + 1)
    return SparseRows(start=start.astype(np.int64), index=index.ravel().astype(np.int64), value=value.ravel())
