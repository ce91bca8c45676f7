"""Cooperative OEF (10a to 10c): the greatest throughput at which no claim would gain by another's GPUs.

The programme has a row for each pair of claims. Few of them bind: the programme starts with the pairs of claims whose
speedups are similar, and the rows that its answer breaks are added until it breaks none. The answer is then optimal
for all rows, since leaving rows out can only raise the optimum: the last objective is its own bound.
"""

from typing import Final

import numpy as np

from eunomia.solve import LinearProgram, SparseRows, solve_linear
from eunomia.units import Ints, Reals
from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.groups import Groups

NEIGHBOURS: Final = 3
"""Pairs with so many claims before and after in the order of speedups have rows from the beginning."""
ADDED: Final = 2
"""Rows that a claim adds at most at a time: those by which it envies most."""
ENVY: Final = 1e-9
"""Relative envy that counts as none."""


def solve_cooperative(groups: Groups) -> Answer:
    """Solve (10a) to (10c), with weights: no claim prefers the GPUs of another claim, each taken by unit of weight.

    Args:
        groups: claims that are not equal, each running on a type that has GPUs.
    """
    pairs, rounds = _neighbours(groups), 1
    gpus, objective = _over(groups, pairs)
    while (more := _envious(groups, gpus, pairs)).size:
        pairs, rounds = np.vstack([pairs, more]), rounds + 1
        gpus, objective = _over(groups, pairs)
    return Answer(gpus=gpus, objective=objective, bound=objective, path="rows by envy", rounds=rounds)


def envy(groups: Groups, gpus: Reals) -> Reals:
    """[claim, other] throughput by unit of weight that a claim would gain with the other's GPUs; at most 0: no envy."""
    each = gpus / groups.weight[:, None]
    with_others = groups.speedup @ each.T
    found: Reals = with_others - np.diag(with_others)[:, None]
    return found


def _neighbours(groups: Groups) -> Ints:
    """[pair, 2] claims that are near in the order of how much they gain from one type to the next."""
    count = groups.weight.size
    shown = np.log(np.maximum(groups.speedup, 1e-9) / groups.speedup.max(axis=1, keepdims=True))
    order = np.argsort(shown @ np.arange(groups.gpus.size), kind="stable")
    near = [np.column_stack([order[:-step], order[step:]]) for step in range(1, min(NEIGHBOURS, count - 1) + 1)]
    both = [pairs for found in near for pairs in (found, found[:, ::-1])]
    return np.vstack(both) if both else np.empty((0, 2), np.int64)


def _envious(groups: Groups, gpus: Reals, pairs: Ints) -> Ints:
    """[pair, 2] the pairs without a row that envy most, at most ``ADDED`` of a claim."""
    gain = envy(groups, gpus)
    gain[pairs[:, 0], pairs[:, 1]] = -np.inf
    most = np.argpartition(-gain, min(ADDED, gain.shape[1] - 1), axis=1)[:, :ADDED]
    owner = np.repeat(np.arange(gain.shape[0]), most.shape[1])
    other = most.ravel()
    own = (groups.speedup * gpus).sum(axis=1) / groups.weight
    breaks = gain[owner, other] > ENVY * max(1.0, float(own.max(initial=0.0)))
    return np.column_stack([owner[breaks], other[breaks]])


def _over(groups: Groups, pairs: Ints) -> tuple[Reals, float]:
    """Solve with the envy rows of some pairs; variable ``claim * types + type`` is GPUs."""
    claims, types = groups.speedup.shape
    owner, other = pairs[:, 0], pairs[:, 1]
    kinds = np.arange(types)
    each = groups.speedup[owner]
    index = np.concatenate(
        [
            (np.arange(claims)[None, :] * types + kinds[:, None]).ravel(),
            np.concatenate([owner[:, None] * types + kinds, other[:, None] * types + kinds], axis=1).ravel(),
        ]
    )
    value = np.concatenate(
        [
            np.ones(claims * types),
            np.concatenate([each / groups.weight[owner, None], -each / groups.weight[other, None]], axis=1).ravel(),
        ]
    )
    start = np.concatenate([np.arange(types) * claims, types * claims + 2 * types * np.arange(owner.size + 1)])
    program = LinearProgram.of(
        groups.speedup.ravel(),
        rows=SparseRows(start=start.astype(np.int64), index=index.astype(np.int64), value=value),
        row_lower=np.concatenate([np.full(types, -np.inf), np.zeros(owner.size)]),
        row_upper=np.concatenate([groups.gpus, np.full(owner.size, np.inf)]),
        maximise=True,
    )
    solved = solve_linear(program, place="oef, cooperative")
    return solved.x.reshape(claims, types), solved.objective
