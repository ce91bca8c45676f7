"""Cooperative OEF (10a to 10c): the greatest throughput at which no claim would gain by another's GPUs.

The programme has a row for each pair of claims. Few of them bind: the programme starts with the pairs of claims whose
speedups are most alike, the rows that its answer breaks most are added, and rows that are far from binding are left
out, until the answer breaks none. The answer is then optimal for all rows, since leaving rows out can only raise the
optimum: the last objective is its own bound. Each solve goes on from the last basis.
"""

from typing import Final

import numpy as np

from eunomia.errors import PluginError
from eunomia.solve import GrowingProgram, LinearProgram, SparseRows
from eunomia.units import Ints, Reals
from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.groups import Groups

NEIGHBOURS: Final = 8
"""Claims whose speedups are most like its own, which a claim's first rows are about."""
ADDED: Final = 8
"""Rows that a claim adds at most at a time: those by which it envies most."""
EVERY: Final = 2
"""Solves from one time that rows are left out to the next."""
FAR: Final = 0.01
"""Part of the greatest throughput by unit of weight that a row is away from binding when it is left out."""
MOST: Final = 600
"""Claims that are not equal; so many take half a minute of CPU time, and time grows with more than their cube."""
ENVY: Final = 1e-9
"""Relative envy that counts as none."""


def solve_cooperative(groups: Groups) -> Answer:
    """Solve (10a) to (10c), with weights: no claim prefers the GPUs of another claim, each taken by unit of weight.

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
    """[claim, other] throughput by unit of weight that a claim would gain with the other's GPUs; at most 0: no envy."""
    each = gpus / groups.weight[:, None]
    with_others = groups.speedup @ each.T
    found: Reals = with_others - np.diag(with_others)[:, None]
    return found


def _neighbours(groups: Groups) -> Ints:
    """[pair, 2] each claim with those whose speedups are in proportions most like its own."""
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
    """The greatest throughput by unit of weight; 1 at least."""
    return max(1.0, float(((groups.speedup * gpus).sum(axis=1) / groups.weight).max(initial=0.0)))


def _envious(groups: Groups, gpus: Reals, gain: Reals, pairs: Ints) -> Ints:
    """[pair, 2] the pairs without a row that envy most, at most ``ADDED`` of a claim."""
    gain = gain.copy()
    gain[pairs[:, 0], pairs[:, 1]] = -np.inf
    most = np.argpartition(-gain, min(ADDED, gain.shape[1] - 1), axis=1)[:, :ADDED]
    owner = np.repeat(np.arange(gain.shape[0]), most.shape[1])
    other = most.ravel()
    breaks = gain[owner, other] > ENVY * _greatest(groups, gpus)
    return np.column_stack([owner[breaks], other[breaks]])


def _started(groups: Groups, pairs: Ints) -> LinearProgram:
    """The GPUs of each type, then the envy rows of some pairs; variable ``claim * types + type`` is GPUs."""
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
