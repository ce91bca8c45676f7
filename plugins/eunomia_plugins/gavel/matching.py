"""The matching of AlloX (EuroSys'20): assign each job a GPU type and a queue position for the minimum mean JCT."""

import importlib
from typing import Any, NamedTuple

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_solvers import LinearProgram, SparseRows, solve_cvxpy, solve_linear


class Matching(NamedTuple):
    """The GPU type of each job and its position in that type's queues, counted from the end: 1 runs last."""

    gpu_type: Ints
    place: Ints


def match(work: Reals, lines: Ints, *, reference: bool = False) -> Matching:
    """Minimise the sum of completion times: a job at position k from the end delays k jobs, including itself.

    Args:
        work: [job, type] GPU-seconds of a job on a type (for gangs seconds times GPUs, as if on one GPU); inf: it
            cannot run there.
        lines: [type] number of GPUs, each of which is a queue.
        reference: whether to solve the specification in cvxpy.
    """
    if work.shape[0] == 0:
        return Matching(np.empty(0, np.int64), np.empty(0, np.int64))
    if int((lines > 0).sum()) == 1:
        return _one_type(work, lines)
    kind, place, most = _pairs(work.shape[0], lines)
    able = np.isfinite(work)[:, kind]
    cost: Reals = np.where(np.isfinite(work), work, 0.0)[:, kind] * place.astype(float)
    solve = _specified if reference else _assigned
    chosen = solve(cost, np.asarray(able, float), most).argmax(axis=1)
    return Matching(kind[chosen], place[chosen])


def _one_type(work: Reals, lines: Ints) -> Matching:
    """Match jobs on a single type: the longest jobs come last, one in each queue."""
    kind = int(np.argmax(lines))
    place = np.empty(work.shape[0], np.int64)
    place[np.argsort(-work[:, kind], kind="stable")] = np.arange(work.shape[0]) // int(lines[kind]) + 1
    return Matching(np.full(work.shape[0], kind, np.int64), place)


def _pairs(jobs: int, lines: Ints) -> tuple[Ints, Ints, Reals]:
    """Return type, position and number of queues of each pair (type, position), for enough positions."""
    longest = [-(-jobs // count) if count else 0 for count in lines.tolist()]
    kind = np.repeat(np.arange(lines.size), longest)
    place = np.concatenate([np.arange(1, length + 1) for length in longest])
    return kind, place, lines[kind].astype(float)


def _assigned(cost: Reals, able: Reals, most: Reals) -> Reals:
    """Return the assignment, [job, pair], of 0 and 1: a transportation problem, whose vertices are integral."""
    jobs, pairs = cost.shape
    cells = np.arange(jobs * pairs).reshape(jobs, pairs)
    rows = [(row, 1.0) for row in cells] + [(cells[:, pair], 1.0) for pair in range(pairs)]
    programme = LinearProgram.of(
        cost.ravel(),
        rows=SparseRows.of(rows),
        row_lower=np.concatenate([np.ones(jobs), np.full(pairs, -np.inf)]),
        row_upper=np.concatenate([np.ones(jobs), most]),
        upper=able.ravel(),
    )
    return solve_linear(programme, place="allox").x.reshape(jobs, pairs)


def _specified(cost: Reals, able: Reals, most: Reals) -> Reals:
    """Return the assignment, [job, pair], by an integer programme with a boolean variable per job and pair."""
    cp: Any = importlib.import_module("cvxpy")
    chosen = cp.Variable(cost.shape, boolean=True)
    fits = [cp.sum(chosen, axis=1) == 1, cp.sum(chosen, axis=0) <= most, chosen <= able]
    solve_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, chosen))), fits), place="allox reference")
    return np.asarray(chosen.value)
