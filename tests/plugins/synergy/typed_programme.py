"""Synergy-Opt on several GPU types (OSDI'22, A.2): a type and a point for each job, and repeated filling."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eunomia import InputError
from eunomia.units import Ints, Reals
from eunomia_solvers import Limits, LinearProgram, SparseRows, solve_linear

_SAME = 1e-9
_PLACE = "Synergy-Opt on several GPU types"
_ROUND = 1e-6


class TypedJob(NamedTuple):
    """A job with the points at which it may run, each on one GPU type."""

    gpus: int
    gpu_type: Ints
    """[point]"""
    cpus: Reals
    """[point] of all its GPUs."""
    memory_gib: Reals
    rate: Reals
    """[point] iterations a second."""
    fair: float
    """The rate below which the job never falls, such as `fair_rate` gives."""


class Choice(NamedTuple):
    """The point of a job."""

    job: int
    point: int


class Filled(NamedTuple):
    """The result of filling a cluster by repeated programmes."""

    choices: tuple[Choice, ...]
    """In order of service within each programme; jobs without a choice wait."""
    programmes: int
    """Number of programmes that were solved with at least one choice."""
    left: Reals
    """[GPU type, 3] GPUs, CPUs and GiB that are not assigned."""


def fair_rate(gpus: Ints, rate: Reals) -> float:
    """Return the rate of a job with an equal share of time on every GPU: the mean over types, weighted by their GPUs.

    Args:
        gpus: [GPU type] in the cluster.
        rate: [GPU type] of the job at its proportional share; 0 where it cannot run.
    """
    return float(gpus @ rate / gpus.sum())


def filled(jobs: Sequence[TypedJob], room: Reals) -> Filled:
    """Return a type and a point for the jobs of a queue by repeated programmes.

    Each programme takes the next jobs of the queue that fit the GPUs of all types together. It may leave some out, as a
    job is not split among types; the next programme takes further jobs for the GPUs that are left.

    Args:
        jobs: in order of service.
        room: [GPU type, 3] GPUs, CPUs and GiB of all machines of a type together.

    Raises:
        InputError: a fair rate, or a number of GPUs, is not above 0, or a point is on a type that the room lacks.
        SolveError: no solver gave an answer.
    """
    _check(jobs, room)
    queue, left, choices, programmes = list(range(len(jobs))), room.astype(float), list[Choice](), 0
    while queue:
        taken = _next_jobs(jobs, queue, float(left[:, 0].sum()))
        if not taken:
            break
        queue = [job for job in queue if job not in taken]
        found = [Choice(taken[turn], point) for turn, point in best([jobs[job] for job in taken], left)]
        programmes += bool(found)
        for job, point in found:
            left[jobs[job].gpu_type[point]] -= _needs(jobs[job])[:, point]
        choices += found
    return Filled(tuple(choices), programmes, np.maximum(left, 0.0))


def best(jobs: Sequence[TypedJob], room: Reals) -> tuple[Choice, ...]:
    """Return a type and a point for as many jobs as can have one, with the greatest sum of rates over fair rates.

    This is the integer programme (22) to (26), with a row for the GPUs of each type, which the paper leaves out, and
    with equation (25) as a bound, as a job may find no place.

    Args:
        jobs: each takes one of its points that are at least as fast as its fair rate, or none.
        room: [GPU type, 3] GPUs, CPUs and GiB.

    Raises:
        SolveError: no solver gave an answer.
    """
    columns = [Choice(number, at) for number, job in enumerate(jobs) for at in _possible(job, room)]
    if not columns:
        return ()
    rows = _rows(jobs, room, columns)
    value = np.array([jobs[job].rate[at] / jobs[job].fair for job, at in columns])
    most = round(_solved(rows, np.ones(value.size), 0.0).sum())
    taken = np.flatnonzero(_solved(rows, value, float(most)) > 1.0 - _ROUND)
    return tuple(columns[column] for column in taken.tolist())


def _possible(job: TypedJob, room: Reals) -> list[int]:
    """Return the points that are fast enough and fit alone."""
    fits = (room[job.gpu_type] * (1.0 + _SAME) >= _needs(job).T).all(axis=1)
    found: list[int] = np.flatnonzero(fits & (job.rate >= job.fair * (1.0 - _SAME))).tolist()
    return found


def _rows(jobs: Sequence[TypedJob], room: Reals, columns: Sequence[Choice]) -> list[tuple[Ints, Reals]]:
    """Return the rows, each at most 1: parts of the GPUs, CPUs and GiB of each type, then one row for each job."""
    owner = np.array([job for job, _ in columns])
    kind = np.array([jobs[job].gpu_type[at] for job, at in columns])
    need = np.column_stack([_needs(jobs[job])[:, at] for job, at in columns])
    made = []
    for gpu_type, amounts in enumerate(room.tolist()):
        here = np.flatnonzero(kind == gpu_type)
        made += [(here, row[here] / amount) for row, amount in zip(need, amounts, strict=True) if here.size]
    owned = [np.flatnonzero(owner == job) for job in np.unique(owner).tolist()]
    return [*made, *((mine, np.ones(mine.size)) for mine in owned)]


def _solved(rows: Sequence[tuple[Ints, Reals]], value: Reals, least: float) -> Reals:
    """Return by column 1 for the points that are chosen: the greatest value with at least this number of jobs."""
    programme = LinearProgram.of(
        value,
        rows=SparseRows.of([*rows, (np.arange(value.size), np.ones(value.size))]),
        row_lower=[*[-np.inf] * len(rows), least],
        row_upper=[*[1.0 + _SAME] * len(rows), np.inf],
        upper=1.0,
        integral=True,
        maximise=True,
    )
    return np.asarray(solve_linear(programme, limits=Limits(gap=0.0), place=_PLACE).x)


def _needs(job: TypedJob) -> Reals:
    """Return GPUs, CPUs and GiB by point."""
    return np.stack([np.full(job.rate.size, float(job.gpus)), job.cpus, job.memory_gib])


def _next_jobs(jobs: Sequence[TypedJob], queue: Sequence[int], gpus: float) -> list[int]:
    """Return the jobs of a queue that fit on this number of GPUs, in order."""
    taken = []
    for job in queue:
        if jobs[job].gpus <= gpus:
            taken.append(job)
            gpus -= jobs[job].gpus
    return taken


def _check(jobs: Sequence[TypedJob], room: Reals) -> None:
    for number, job in enumerate(jobs):
        if not job.fair > 0.0:
            raise InputError("the fair rate of a job must be above 0", value=str(job.fair), place=f"job {number}")
        if job.gpus < 1:
            raise InputError("a job must have at least 1 GPU", value=str(job.gpus), place=f"job {number}")
        if job.gpu_type.size and not 0 <= job.gpu_type.min() <= job.gpu_type.max() < len(room):
            rule = f"a point must be on one of the {len(room)} GPU types, counted from 0"
            raise InputError(rule, value=str(job.gpu_type.tolist()), place=f"job {number}")
