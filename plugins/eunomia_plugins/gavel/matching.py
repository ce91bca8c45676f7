"""AlloX' matching (EuroSys'20): every job to a GPU type and a place in its line, so that the mean JCT is least."""

import importlib
from typing import Any, NamedTuple

import numpy as np

from eunomia.solve import LinearProgram, SparseRows, solve_cvxpy, solve_linear
from eunomia.units import Ints, Reals


class Matching(NamedTuple):
    """By job: the GPU type that it is to run on, and its place in that type's lines, 1 being the last to run."""

    gpu_type: Ints
    place: Ints


def match(work: Reals, lines: Ints, *, reference: bool = False) -> Matching:
    """Minimise the sum of completion times: a job at place k from the end delays k jobs, itself among them.

    Args:
        work: [job, type] GPU-seconds that a job takes there (gangs: seconds times GPUs, as if it ran on one GPU for
            so much longer); inf: it does not run there.
        lines: [type] GPUs, each a line of its own.
        reference: state it in cvxpy, line by line.
    """
    if work.shape[0] == 0:
        return Matching(np.empty(0, np.int64), np.empty(0, np.int64))
    if int((lines > 0).sum()) == 1:
        return _one_type(work, lines)
    kind, place, most = _slots(work.shape[0], lines)
    able = np.isfinite(work)[:, kind]
    cost: Reals = np.where(np.isfinite(work), work, 0.0)[:, kind] * place.astype(float)
    solve = _specified if reference else _assigned
    chosen = solve(cost, np.asarray(able, float), most).argmax(axis=1)
    return Matching(kind[chosen], place[chosen])


def _one_type(work: Reals, lines: Ints) -> Matching:
    """All GPUs alike: the longest are last, one in each line."""
    kind = int(np.argmax(lines))
    place = np.empty(work.shape[0], np.int64)
    place[np.argsort(-work[:, kind], kind="stable")] = np.arange(work.shape[0]) // int(lines[kind]) + 1
    return Matching(np.full(work.shape[0], kind, np.int64), place)


def _slots(jobs: int, lines: Ints) -> tuple[Ints, Ints, Reals]:
    """By slot: type, place and how many GPUs have it; no line need be longer than if all jobs stood there."""
    longest = [-(-jobs // count) if count else 0 for count in lines.tolist()]
    kind = np.repeat(np.arange(lines.size), longest)
    place = np.concatenate([np.arange(1, length + 1) for length in longest])
    return kind, place, lines[kind].astype(float)


def _assigned(cost: Reals, able: Reals, most: Reals) -> Reals:
    """[job, slot] 1 where it stands: a transport problem, whose vertices are whole."""
    jobs, slots = cost.shape
    cells = np.arange(jobs * slots).reshape(jobs, slots)
    rows = [(row, 1.0) for row in cells] + [(cells[:, slot], 1.0) for slot in range(slots)]
    programme = LinearProgram.of(
        cost.ravel(),
        rows=SparseRows.of(rows),
        row_lower=np.concatenate([np.ones(jobs), np.full(slots, -np.inf)]),
        row_upper=np.concatenate([np.ones(jobs), most]),
        upper=able.ravel(),
    )
    return solve_linear(programme, place="allox").x.reshape(jobs, slots)


def _specified(cost: Reals, able: Reals, most: Reals) -> Reals:
    """The same with a whole-number variable for each job and slot."""
    cp: Any = importlib.import_module("cvxpy")
    stands = cp.Variable(cost.shape, boolean=True)
    fits = [cp.sum(stands, axis=1) == 1, cp.sum(stands, axis=0) <= most, stands <= able]
    solve_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, stands))), fits), place="allox reference")
    return np.asarray(stands.value)
