"""Non-cooperative OEF (9a to 9c): all claims get the same throughput per unit of weight, which is maximised.

With w_l the speedups, pi_l the weight and m_j the GPUs of type j, the programme is

    maximise t   with   sum_j w_lj x_lj = pi_l t,   sum_l x_lj <= m_j,   x >= 0.

By duality, 1/t is the maximum of g(p) = sum_l pi_l min_j p_j / w_lj over prices p with sum_j m_j p_j = 1: a claim
buys GPUs of the type on which a unit of its throughput is cheapest. Near the optimal prices almost every claim has
one such type, so that few columns are needed: the programme over them gives new prices, and columns that are cheaper
at these prices are added until there are none (column generation). The initial prices come from a few steps that
raise the prices of types in excess demand.
"""

from typing import Final

import numpy as np

from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.groups import Groups
from eunomia_solvers import Limits, LinearProgram, Solution, SparseRows, solve_linear

PRICE_STEPS: Final = 60
NEAR: Final = 0.02
"""A type gets an initial column if its price per unit of throughput exceeds the claim's cheapest by at most this.
"""
DROPPED: Final = 0.5
"""A column is dropped if its price exceeds the cheapest by at least this fraction."""
CHEAPER: Final = 1e-10


def solve_noncooperative(groups: Groups) -> Answer:
    """Solve (9a) to (9c) with weights.

    Args:
        groups: claims that differ from each other, each able to run on a type that has GPUs.
    """
    cost = _cost(groups)
    columns = _near(_paid(cost, _first_prices(groups, cost)), NEAR)
    gpus, level, price = _over(groups, columns)
    bound, rounds, best = _bound(groups, cost, price), 1, level
    while (missing := _missing(_paid(cost, price), columns)).any():
        if level > best * (1.0 + CHEAPER):
            columns = columns & _near(
                _paid(cost, price), DROPPED
            )  # only if the level rose, so that the column generation ends
        best = max(best, level)
        columns = columns | missing
        gpus, level, price = _over(groups, columns)
        bound, rounds = min(bound, _bound(groups, cost, price)), rounds + 1
    total = float(groups.weight.sum())
    return Answer(
        gpus=gpus, objective=level * total, bound=max(bound, level) * total, path="columns by price", rounds=rounds
    )


def _cost(groups: Groups) -> Reals:
    """Return GPUs per unit of throughput, [claim, type]; inf if the claim cannot run there or there are no GPUs."""
    able = (groups.speedup > 0.0) & (groups.gpus > 0.0)
    found: Reals = np.where(able, 1.0 / np.where(able, groups.speedup, 1.0), np.inf)
    return found


def _first_prices(groups: Groups, cost: Reals) -> Reals:
    """Return initial prices, [type], after some steps that raise the prices of types in excess demand."""
    gpus = np.maximum(groups.gpus, 1e-12)
    able = groups.speedup > 0.0
    logarithm = np.log(np.where(able, groups.speedup, 1.0)).sum(axis=0)
    typical = np.exp(logarithm / np.maximum(able.sum(axis=0), 1))  # 1 for a type on which no claim runs
    price = typical / (typical @ gpus)
    best, best_price = -np.inf, price
    rows = np.arange(groups.weight.size)
    for step in range(PRICE_STEPS):
        paid = _paid(cost, price)
        chosen = paid.argmin(axis=1)
        value = float(groups.weight @ paid[rows, chosen])
        if value > best:
            best, best_price = value, price
        asked = np.bincount(chosen, weights=groups.weight * cost[rows, chosen], minlength=gpus.size) / value
        price = price * np.exp(0.5 / (1.0 + step) ** 0.6 * np.clip(asked / gpus - 1.0, -1.0, 1.0))
        price = price / (price @ gpus)
    found: Reals = best_price
    return found


def _paid(cost: Reals, price: Reals) -> Reals:
    """Return the price of a unit of throughput, [claim, type].

    It is inf if the claim cannot run on the type, even at a price of 0.
    """
    able = np.isfinite(cost)
    found: Reals = np.where(able, np.where(able, cost, 0.0) * price, np.inf)
    return found


def _near(paid: Reals, within: float) -> Bools:
    """Return whether a type is nearly the cheapest for a claim, [claim, type]."""
    found: Bools = paid <= paid.min(axis=1, keepdims=True) * (1.0 + within)
    return found & np.isfinite(paid)


def _missing(paid: Reals, columns: Bools) -> Bools:
    """Return the missing columns, [claim, type]: the cheapest type of a claim that has no equally cheap column."""
    rows = np.arange(paid.shape[0])
    cheapest = paid.argmin(axis=1)
    known = np.where(columns, paid, np.inf).min(axis=1)
    found: Bools = np.zeros(paid.shape, dtype=bool)
    found[rows, cheapest] = paid[rows, cheapest] < known * (1.0 - CHEAPER)
    return found


def _bound(groups: Groups, cost: Reals, price: Reals) -> float:
    """Return an upper bound on the level.

    It is the value of all GPUs over the cost of one unit of throughput per unit of weight for every claim.
    """
    spent = float(groups.weight @ _paid(cost, price).min(axis=1))
    return float(groups.gpus @ price) / spent if spent > 0.0 else np.inf


def _over(groups: Groups, columns: Bools) -> tuple[Reals, float, Reals]:
    """Solve over some columns; return GPUs, the common throughput per unit of weight, and the price of each type.

    A claim with one column gets GPUs equal to its weight times the level over its speedup, so only claims with several
    columns have variables.
    """
    one = columns.sum(axis=1) == 1
    alone = np.flatnonzero(one)
    several = np.flatnonzero(~one)
    kind = columns[alone].argmax(axis=1)
    each = groups.weight[alone] / groups.speedup[alone, kind]
    fixed: Reals = np.bincount(kind, weights=each, minlength=groups.gpus.size).astype(float)
    owner, of_type = np.nonzero(columns[several])
    solved = _solved(groups, several, owner, of_type, fixed)
    level = float(solved.x[0])
    gpus = np.zeros(groups.speedup.shape)
    gpus[alone, kind] = level * each
    gpus[several[owner], of_type] = solved.x[1:]
    price = (
        np.zeros(groups.gpus.size)
        if solved.row_price is None
        else np.maximum(solved.row_price[: groups.gpus.size], 0.0)
    )
    return gpus, level, price


def _solved(groups: Groups, several: Ints, owner: Ints, of_type: Ints, fixed: Reals) -> Solution:
    """Maximise the level: variable 0 is the level, other variables are GPUs of claims with several columns."""
    types, count = groups.gpus.size, owner.size
    variable = 1 + np.arange(count)
    row = np.concatenate([np.arange(types), types + np.arange(several.size), of_type, types + owner])
    column = np.concatenate([np.zeros(types + several.size, np.int64), variable, variable])
    entries = [fixed, -groups.weight[several], np.ones(count), groups.speedup[several[owner], of_type]]
    order = np.lexsort((column, row))
    start = np.searchsorted(row[order], np.arange(types + several.size + 1))
    rows = SparseRows(start=start.astype(np.int64), index=column[order], value=np.concatenate(entries)[order])
    free = np.full(types, -np.inf)
    program = LinearProgram.of(
        np.concatenate([[1.0], np.zeros(count)]),
        rows=rows,
        row_lower=np.concatenate([free, np.zeros(several.size)]),
        row_upper=np.concatenate([groups.gpus, np.zeros(several.size)]),
        maximise=True,
    )
    return solve_linear(program, limits=Limits(), place="oef, non-cooperative")
