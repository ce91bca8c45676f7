"""A workload: users, apps and jobs with their demands and arrivals, as columns instead of an object for each job.

It holds the arrivals and the values of the trace; true speeds of jobs are in ``eunomia_testbed.performance``.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from eunomia.model.shapes import builds, value
from eunomia.units import Ints, Reals
from eunomia_testbed.workload.dropped import Dropped
from eunomia_testbed.workload.search import SimulatedSearch


@value
class Regime:
    """A part of a job's work that has one batch size."""

    iterations: float
    """Optimizer steps of this stretch, at its own batch size."""
    batch_size: float
    seconds_per_iteration: float
    """At the job's requested GPUs, alone; NaN: from the performance model, for that batch size."""


@builds
class UserColumns:
    """Users, one row each."""

    id: Sequence[str]
    weight: Reals


@builds
class AppColumns:
    """Apps, one row each, in order of arrival."""

    id: Sequence[str]
    user: Ints
    """Row of the user."""
    weight: Reals
    arrival_seconds: Reals


@builds
class JobColumns:
    """Jobs, one row each, in order of arrival; jobs of an app that arrive together are adjacent."""

    id: Sequence[str]
    """``app/number``."""
    app: Ints
    """Row of the app."""
    arrival_seconds: Reals
    """Since the start of the simulation: the first arrival is at 0, unless the trace gives another start."""
    least: Ints
    """Smallest gang in GPUs."""
    most: Ints
    """Largest gang in GPUs: the request of the trace."""
    iterations: Reals
    """Whole work in optimizer steps, of all regimes. A trace of durations has a step per second at ``most`` GPUs."""
    seconds_per_iteration: Reals
    """At ``most`` GPUs, alone, on one machine, on the trace's GPU type; NaN: from the performance model."""
    model: Ints
    """Index into ``Workload.models``; -1: the trace gives no model and none was drawn."""
    gpu_type: Sequence[str | None] | None = None
    """The GPU type that a job requires; None: any. Its times are of that type, whatever ``measured_on`` says."""
    measured_on: Sequence[str | None] | None = None
    """The GPU type on which ``seconds_per_iteration`` holds, in any case; None: ``Workload.reference_type``."""
    cpus_per_gpu: Reals | None = None
    memory_gib_per_gpu: Reals | None = None
    batch_size: Reals | None = None
    """Global batch size at the start; None: unknown."""
    epochs: Reals | None = None
    """Passes over the data set that a job makes; None or NaN: unknown."""
    samples_per_epoch: Reals | None = None
    weight: Reals | None = None
    gpu_share: Reals | None = None
    """The requested fraction of each GPU, at most 1; None: whole GPUs."""
    adaptation: Sequence[str] | None = None
    """How a job changes its batch size: ``static``, ``accordion``, ``gns`` or ``other``; None: not declared."""
    first_batch_iterations: Reals | None = None
    """Whole work in steps of the first batch size, as in the trace; None: ``iterations``."""


@builds
class Workload:
    """Users, apps and jobs to run, and the dropped rows of the trace."""

    name: str
    users: UserColumns
    apps: AppColumns
    jobs: JobColumns
    models: tuple[str, ...] = ()
    """Names of models, as in performance models, such as ``ResNet-18 (batch size 32)``."""
    regimes: Mapping[int, tuple[Regime, ...]] = dataclasses.field(default_factory=dict)
    """By job row: its batch sizes over time; a missing job has one regime."""
    searches: Mapping[int, SimulatedSearch] = dataclasses.field(default_factory=dict)
    """By app row: its search; the jobs of a missing app are independent runs."""
    exclusive_seconds: Reals | None = None
    """By job: run time alone by the trace's own profile (rho's denominator); None: from the true speeds."""
    reference_type: str | None = None
    """The GPU type on which ``seconds_per_iteration`` holds, in any case; None: unknown, which a cluster of several
    types and a performance model with speeds by type refuse."""
    assumed_speeds: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """By a model that the performance model lacks (empty: jobs without a model), the name whose speeds are taken; None:
    the times of its jobs hold on every GPU type. ``simulate(unknown_models=...)`` fills it in."""
    source: str = ""
    """The format or generator, as text."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    """Changes of a reader that dropped no row, one sentence each: sorted arrivals, drawn models."""

    @property
    def size(self) -> int:
        """Return the number of jobs."""
        return len(self.jobs.id)

    @classmethod
    def single_jobs(
        cls,
        name: str,
        *,
        ids: Sequence[str],
        users: Sequence[str] | None = None,
        arrival_seconds: Reals,
        gpus: Ints,
        iterations: Reals,
        seconds_per_iteration: Reals,
        models: Sequence[str | None] | None = None,
        **more: object,
    ) -> Self:
        """Make each job a separate app, named like the job, with the job ``app/0``; rows may be in any order.

        Args:
            name: name of the workload, such as the file's.
            ids: distinct ids of the apps.
            users: user of each app; None: one user, ``all``.
            arrival_seconds: arrival of each app.
            gpus: gang of each app.
            iterations: iterations of each app.
            seconds_per_iteration: by app, at its gang; NaN: from the performance model.
            models: model of each app; None: unknown.
            more: further fields of ``JobColumns`` (in the given order) and ``Workload``.
        """
        order = np.lexsort((np.arange(len(ids)), arrival_seconds))
        of_job = {field.name for field in dataclasses.fields(JobColumns)}
        names, user_rows = _coded(["all"] * len(ids) if users is None else [user or "all" for user in users])
        kinds, kind_rows = ([], np.full(len(ids), -1)) if models is None else _coded(models)
        columns = {
            "arrival_seconds": np.asarray(arrival_seconds, float),
            "least": np.asarray(gpus, np.int64),
            "most": np.asarray(gpus, np.int64),
            "iterations": np.asarray(iterations, float),
            "seconds_per_iteration": np.asarray(seconds_per_iteration, float),
            "model": kind_rows,
            **{key: column for key, column in more.items() if key in of_job},
        }
        jobs = JobColumns(
            id=[f"{ids[row]}/0" for row in order],
            app=np.arange(len(ids), dtype=np.int64),
            **{key: _ordered(column, order) for key, column in columns.items()},  # type: ignore[arg-type]
        )
        apps = AppColumns(
            id=[ids[row] for row in order],
            user=user_rows[order],
            weight=np.ones(len(ids)),
            arrival_seconds=jobs.arrival_seconds,
        )
        rest = _moved({key: column for key, column in more.items() if key not in of_job}, order)
        known = UserColumns(id=names, weight=np.ones(len(names)))
        return cls(name=name, users=known, apps=apps, jobs=jobs, models=tuple(kinds), **rest)


def _moved(rest: dict[str, Any], order: Ints) -> dict[str, Any]:
    """Return a workload's fields by job row for a new order of rows."""
    place = np.argsort(order)
    regimes, exclusive = dict(rest.pop("regimes", {})), rest.pop("exclusive_seconds", None)
    return rest | {
        "regimes": {int(place[row]): value for row, value in regimes.items()},
        "exclusive_seconds": None if exclusive is None else np.asarray(exclusive, float)[order],
    }


def _coded(texts: Sequence[str | None]) -> tuple[list[str], Ints]:
    """Return the distinct texts, sorted, and by row the index of its text; -1: None or empty."""
    names = sorted({text for text in texts if text})
    index: dict[str | None, int] = {name: row for row, name in enumerate(names)}
    return names, np.fromiter((index.get(text, -1) for text in texts), dtype=np.int64, count=len(texts))


def _ordered(column: object, order: Ints) -> object:
    if column is None:
        return None
    if isinstance(column, np.ndarray):
        return column[order]
    rows: list[object] = list(column)  # type: ignore[call-overload]
    return [rows[row] for row in order]
