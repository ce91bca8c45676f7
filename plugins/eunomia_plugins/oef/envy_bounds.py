"""Upper bounds on the objective of cooperative OEF from fewer envy rows, for any division of the claims into groups.

The quick bound is the optimum of a programme over groups, which no solution exceeds: a group's throughput is at most
that with its fastest claim for each type, and the mean of its claims does not envy the mean bundle of another group.
The close bound has variables for each claim, which must not envy the mean bundle of another group; the most violated
rows are added. Every solve gives a valid bound, since each row follows from the paper's rows.
"""

from typing import Final

import numpy as np
from scipy import sparse

from eunomia.units import Ints, Reals
from eunomia_plugins.oef.groups import Groups
from eunomia_plugins.oef.near_equal import ADDED, preferences, started, weights_of
from eunomia_solvers import GrowingProgram, Limits, LinearProgram, SparseRows, solve_linear

BROKEN: Final = 1e-6
"""A row is added if it is violated by more than this fraction of the mean throughput per unit of weight."""
NEARLY: Final = 0.02
"""Slack of a row of the programme over groups, as a fraction of the largest throughput, up to which it may bind."""


def quick_bound(groups: Groups, owner: Ints) -> tuple[float, Reals]:
    """Return the quick bound, and the mean bundles, [group, type], of the programme over groups that proves it.

    Args:
        groups: the claims.
        owner: [claim] index of its group.
    """
    weight, total = weights_of(groups, owner)
    mean, most = total / weight[:, None], np.zeros_like(total)
    np.maximum.at(most, owner, groups.speedup)
    program = GrowingProgram(started(most * weight[:, None], weight, groups.gpus), place="oef, bound")
    while True:
        each = program.solve().reshape(total.shape)
        own = (most * each).sum(axis=1)
        gain = mean @ each.T - own[:, None]
        np.fill_diagonal(gain, -np.inf)
        group, other = _broken(gain, ADDED, float(own.max()))
        if not group.size:
            return float((most * weight[:, None] * each).sum()), each
        rows = preferences(most[group], group, mean[group], other)
        program.add(rows, np.zeros(group.size), np.full(group.size, np.inf))


def close_bound(groups: Groups, owner: Ints, *, solves: int, add: int = 4) -> float:
    """Return the close bound, the smallest of several programmes with a variable for each claim and type.

    Args:
        groups: the claims.
        owner: [claim] index of its group.
        solves: maximum number of programmes; each takes some seconds for a thousand claims on ten types.
        add: maximum number of rows added per claim at a time.
    """
    bound, each = quick_bound(groups, owner)
    claims, types = groups.speedup.shape
    program = GrowingProgram(_by_claim(groups, owner, _mixtures(groups, owner, each)), place="oef, bound")
    for _ in range(solves):
        found = program.solve()
        gpus, mean = found[: claims * types].reshape(claims, types), found[claims * types :].reshape(each.shape)
        bound = min(bound, float((groups.speedup * gpus).sum()))
        own = (groups.speedup * gpus).sum(axis=1) / groups.weight
        claim, other = _broken(groups.speedup @ mean.T - own[:, None], add, float(own.mean()))
        if not claim.size:
            break
        one = sparse.csr_matrix((np.ones(other.size), (np.arange(other.size), other)), shape=(other.size, len(each)))
        rows = _plain(_no_envy(groups, claim, one))
        program.add(rows, np.zeros(claim.size), np.full(claim.size, np.inf))
    return bound


def _broken(gain: Reals, most: int, scale: float) -> tuple[Ints, Ints]:
    """Return row and column indices of the largest gains above the tolerance, at most ``most`` per row."""
    columns = np.argsort(-gain, axis=1, kind="stable")[:, :most]
    row, column = np.repeat(np.arange(gain.shape[0]), columns.shape[1]), columns.ravel()
    kept = gain[row, column] > BROKEN * max(scale, 1e-12)
    return row[kept], column[kept]


def _mixtures(groups: Groups, owner: Ints, each: Reals) -> sparse.csr_matrix:
    """Return the mixture of bundles that each group envies, [group, group], weighted by the duals of its rows.

    Args:
        groups: the claims.
        owner: [claim] index of its group.
        each: [group, type] bundles of the programme over groups.
    """
    weight, total = weights_of(groups, owner)
    mean, most = total / weight[:, None], np.zeros_like(total)
    np.maximum.at(most, owner, groups.speedup)
    own = (most * each).sum(axis=1)
    near = mean @ each.T - own[:, None] > -NEARLY * float(own.max())
    np.fill_diagonal(near, False)
    group, other = np.nonzero(near)
    program = started(most * weight[:, None], weight, groups.gpus)
    rows = preferences(most[group], group, mean[group], other)
    whole = GrowingProgram(program, place="oef, bound")
    whole.add(rows, np.zeros(group.size), np.full(group.size, np.inf))
    price = solve_linear(whole.program, limits=Limits(), place="oef, bound").row_price
    paid = np.zeros(group.size) if price is None else np.abs(price[groups.gpus.size :])
    part = sparse.csr_matrix((paid, (group, other)), shape=near.shape)
    return sparse.csr_matrix(sparse.diags(1.0 / np.maximum(np.asarray(part.sum(axis=1)).ravel(), 1e-12)) @ part)


def _by_claim(groups: Groups, owner: Ints, mixture: sparse.csr_matrix) -> LinearProgram:
    """Return the programme whose variables are GPUs by claim and type, then mean bundles by group and type."""
    claims, types = groups.speedup.shape
    weight, _ = weights_of(groups, owner)
    count, means = claims * types, weight.size * types
    kind, number = np.tile(np.arange(types), claims), np.arange(count)
    has = sparse.csr_matrix((np.ones(count), (kind, number)), shape=(types, count + means))
    part = (-1.0 / weight[owner]).repeat(types)
    summed = sparse.csr_matrix((part, (owner.repeat(types) * types + kind, number)), shape=(means, count))
    able = np.flatnonzero(np.diff(mixture.indptr)[owner] > 0)
    envies = _no_envy(groups, able, mixture[owner[able]])
    rows = sparse.vstack([has, sparse.hstack([summed, sparse.identity(means)]), envies]).tocsr()
    return LinearProgram.of(
        np.concatenate([groups.speedup.ravel(), np.zeros(means)]),
        rows=_plain(rows),
        row_lower=np.concatenate([np.full(types, -np.inf), np.zeros(means + able.size)]),
        row_upper=np.concatenate([groups.gpus, np.zeros(means), np.full(able.size, np.inf)]),
        maximise=True,
    )


def _no_envy(groups: Groups, claim: Ints, parts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return rows that are nonnegative if a claim does not envy a mixture of mean bundles, per unit of weight.

    Args:
        groups: the claims.
        claim: [row] the claim.
        parts: [row, group] weights of the mixture.
    """
    claims, types = groups.speedup.shape
    row = np.arange(claim.size).repeat(types)
    value = (groups.speedup[claim] / groups.weight[claim, None]).ravel()
    column = (claim[:, None] * types + np.arange(types)).ravel()
    own = sparse.csr_matrix((value, (row, column)), shape=(claim.size, claims * types))
    entry = sparse.coo_matrix(parts)
    theirs = (entry.data[:, None] * groups.speedup[claim[entry.row]]).ravel()
    column = (entry.col[:, None] * types + np.arange(types)).ravel()
    shape = (claim.size, parts.shape[1] * types)
    return sparse.csr_matrix(
        sparse.hstack([own, sparse.csr_matrix((-theirs, (entry.row.repeat(types), column)), shape=shape)])
    )


def _plain(rows: sparse.csr_matrix) -> SparseRows:
    rows.sort_indices()
    return SparseRows(start=rows.indptr.astype(np.int64), index=rows.indices.astype(np.int64), value=rows.data)
