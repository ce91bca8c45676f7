"""The matching of AlloX (EuroSys'20): gives each job a GPU type and a position in line, for the least mean JCT."""

import importlib
from typing import Any, NamedTuple

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_solvers import LinearProgram, SparseRows, solve_cvxpy, solve_linear


class Matching(NamedTuple):
    """By job: its GPU type and its place in that type's lines, 1 being the last to run."""

    gpu_type: Ints
    place: Ints


def match(work: Reals, lines: Ints, *, reference: bool = False) -> Matching:
    """Minimise the sum of completion times: a job at place k from the end delays k jobs, itself included.

    Args:
        work: [job, type] GPU-seconds that a job takes on a type (for gangs seconds times GPUs, as if on one GPU);
            inf: it does not run there.
        lines: [type] GPUs, each a line of its own.
        reference: solve the specification in cvxpy.
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
    """With one type: the longest jobs are last, one in each line."""
    kind = int(np.argmax(lines))
    place = np.empty(work.shape[0], np.int64)
    place[np.argsort(-work[:, kind], kind="stable")] = np.arange(work.shape[0]) // int(lines[kind]) + 1
    return Matching(np.full(work.shape[0], kind, np.int64), place)


def _pairs(jobs: int, lines: Ints) -> tuple[Ints, Ints, Reals]:
    """By (type, place) pair: type, place and the number of its lines; a line holds at most its part of all jobs."""
    longest = [-(-jobs // count) if count else 0 for count in lines.tolist()]
    kind = np.repeat(np.arange(lines.size), longest)
    place = np.concatenate([np.arange(1, length + 1) for length in longest])
    return kind, place, lines[kind].astype(float)


def _assigned(cost: Reals, able: Reals, most: Reals) -> Reals:
    """[job, pair] 1 for the pair of a job: a transportation problem, so vertices are integral."""
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
    """[job, pair] the assignment by an integer programme with a boolean variable for each job and pair."""
    cp: Any = importlib.import_module("cvxpy")
    chosen = cp.Variable(cost.shape, boolean=True)
    fits = [cp.sum(chosen, axis=1) == 1, cp.sum(chosen, axis=0) <= most, chosen <= able]
    solve_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, chosen))), fits), place="allox reference")
    return np.asarray(chosen.value)
