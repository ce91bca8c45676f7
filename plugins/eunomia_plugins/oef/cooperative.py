"""Cooperative OEF (10a to 10c): the greatest throughput at which no claim would gain from another's GPUs.

The programme has a row for each pair of claims, of which few bind. It starts with the pairs of claims with the most
similar speedups. The rows that the solution violates most are added, and rows that are far from binding are
dropped, until the solution violates none. The solution is then optimal for all rows, since dropping rows can only
raise the optimum: the last objective is its own bound. Each solve starts from the previous basis.
"""

from typing import Final

import numpy as np

from eunomia import PluginError
from eunomia.solve import GrowingProgram, LinearProgram, SparseRows
from eunomia.units import Ints, Reals
from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.groups import Groups

NEIGHBOURS: Final = 8
"""Number of claims with the most similar speedups in a claim's first rows."""
ADDED: Final = 8
"""Greatest number of rows that are added for a claim at a time: those with the most envy."""
EVERY: Final = 2
"""Number of solves between two times at which rows are dropped."""
FAR: Final = 0.01
"""A row is dropped if its slack exceeds this fraction of the greatest throughput per unit of weight."""
MOST: Final = 600
"""Greatest number of claims that are not equal; that many take half a minute of CPU time, which grows faster than their
cube."""
ENVY: Final = 1e-9
"""Relative envy up to this value counts as none."""


def solve_cooperative(groups: Groups) -> Answer:
    """Solve (10a) to (10c) with weights: no claim prefers the GPUs of another claim, both per unit of weight.

    Args:
        groups: claims that are not equal, each running on a type that has GPUs.

    Raises:
        PluginError: more than ``MOST`` claims.
    """
    if groups.weight.size > MOST:
        rule = f"cooperative OEF must have at most {MOST} claims with different speedups; rounded ones are merged"
        raise PluginError(rule, value=str(groups.weight.size), place="oef, cooperative")
    pairs, types = _neighbours(groups), groups.gpus.size
    program = GrowingProgram(_started(groups, pairs), place="oef, cooperative")
    rounds, last = 0, np.inf
    while True:
        gpus, rounds = program.solve().reshape(groups.speedup.shape), rounds + 1
        objective = float((groups.speedup * gpus).sum())
        gain = envy(groups, gpus)
        more = _envious(groups, gpus, gain, pairs)
        if not more.size:
            return Answer(gpus=gpus, objective=objective, bound=objective, path="rows by envy", rounds=rounds)
        if rounds % EVERY == 0 and objective < last * (1.0 - ENVY):  # else rows could come and go for ever
            far = np.flatnonzero(-gain[pairs[:, 0], pairs[:, 1]] > FAR * _greatest(groups, gpus))
            program.leave_out(far + types)
            pairs, last = np.delete(pairs, far, axis=0), objective
        program.add(_envy_rows(groups, more), np.zeros(len(more)), np.full(len(more), np.inf))
        pairs = np.vstack([pairs, more])


def envy(groups: Groups, gpus: Reals) -> Reals:
    """Return [claim, other] the gain in throughput per unit of weight with the other's GPUs; at most 0: no envy."""
    each = gpus / groups.weight[:, None]
    with_others = groups.speedup @ each.T
    found: Reals = with_others - np.diag(with_others)[:, None]
    return found


def _neighbours(groups: Groups) -> Ints:
    """Return [pair, 2] each claim with the claims whose speedups have the most similar proportions."""
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
    """Return the greatest throughput per unit of weight; at least 1."""
    return max(1.0, float(((groups.speedup * gpus).sum(axis=1) / groups.weight).max(initial=0.0)))


def _envious(groups: Groups, gpus: Reals, gain: Reals, pairs: Ints) -> Ints:
    """Return [pair, 2] the pairs without a row that have the most envy, at most ``ADDED`` per claim."""
    gain = gain.copy()
    gain[pairs[:, 0], pairs[:, 1]] = -np.inf
    most = np.argpartition(-gain, min(ADDED, gain.shape[1] - 1), axis=1)[:, :ADDED]
    owner = np.repeat(np.arange(gain.shape[0]), most.shape[1])
    other = most.ravel()
    breaks = gain[owner, other] > ENVY * _greatest(groups, gpus)
    return np.column_stack([owner[breaks], other[breaks]])


def _started(groups: Groups, pairs: Ints) -> LinearProgram:
    """Return the programme with the GPUs of each type and the envy rows of some pairs.

    Variable ``claim * types + type`` is GPUs.
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
    """Rows at 0 or more where a claim has as much by its own GPUs as by another's, each by unit of weight."""
    owner, other, types = pairs[:, 0], pairs[:, 1], groups.gpus.size
    each, kinds = groups.speedup[owner], np.arange(types)
    index = np.concatenate([owner[:, None] * types + kinds, other[:, None] * types + kinds], axis=1)
    value = np.concatenate([each / groups.weight[owner, None], -each / groups.weight[other, None]], axis=1)
    start = 2 * types * np.arange(owner.size + 1)
    return SparseRows(start=start.astype(np.int64), index=index.ravel().astype(np.int64), value=value.ravel())
