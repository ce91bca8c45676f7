"""A workload: users, apps and jobs with their demands and arrivals, as columns instead of an object for each job.

It has the arrivals and times stated by the trace; the true speeds of jobs are in ``eunomia_testbed.performance``.
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
    """A part of a job's work with a constant batch size."""

    iterations: float
    """Optimizer steps in this regime, at its own batch size."""
    batch_size: float
    seconds_per_iteration: float
    """Seconds per step on the job's requested GPUs, alone; NaN: from the performance model at this batch size."""


@builds
class UserColumns:
    """The users of a workload, one row each."""

    id: Sequence[str]
    weight: Reals


@builds
class AppColumns:
    """The apps of a workload, one row each, in order of arrival."""

    id: Sequence[str]
    user: Ints
    """Row of the app's user."""
    weight: Reals
    arrival_seconds: Reals


@builds
class JobColumns:
    """The jobs of a workload, one row each, in order of arrival; jobs of an app that arrive together are adjacent."""

    id: Sequence[str]
    """Id, ``app/number``."""
    app: Ints
    """Row of the job's app."""
    arrival_seconds: Reals
    """Seconds since the start of the simulation; the first arrival is at 0, unless the trace sets another start."""
    least: Ints
    """Smallest gang, as a number of GPUs."""
    most: Ints
    """Largest gang, as a number of GPUs: the trace's request."""
    iterations: Reals
    """Total work in optimizer steps over all regimes. For a trace of durations, a step takes one second on ``most``
    GPUs."""
    seconds_per_iteration: Reals
    """Seconds per step on ``most`` GPUs, alone on one machine, on the trace's GPU type; NaN: from the performance
    model."""
    model: Ints
    """Index into ``Workload.models``; -1: the trace has no model, and none was drawn."""
    gpu_type: Sequence[str | None] | None = None
    """The GPU type that a job requires, to which its times then refer regardless of ``measured_on``; None: any."""
    measured_on: Sequence[str | None] | None = None
    """The GPU type to which ``seconds_per_iteration`` refers (case-insensitive); None: ``Workload.reference_type``."""
    cpus_per_gpu: Reals | None = None
    memory_gib_per_gpu: Reals | None = None
    batch_size: Reals | None = None
    """Global batch size at the start; None: unknown."""
    epochs: Reals | None = None
    """Number of passes over its data set that a job makes; None or NaN: unknown."""
    samples_per_epoch: Reals | None = None
    weight: Reals | None = None
    gpu_share: Reals | None = None
    """The requested fraction of each GPU, at most 1; None: whole GPUs."""
    adaptation: Sequence[str] | None = None
    """Rule by which a job changes its batch size: ``static``, ``accordion``, ``gns`` or ``other``; None: not
    declared."""
    first_batch_iterations: Reals | None = None
    """Total work in steps at the first batch size, as in the trace; None: ``iterations``."""


@builds
class Workload:
    """The users, apps and jobs to simulate, and the dropped rows of the trace."""

    name: str
    users: UserColumns
    apps: AppColumns
    jobs: JobColumns
    models: tuple[str, ...] = ()
    """Model names as in performance models, such as ``ResNet-18 (batch size 32)``."""
    regimes: Mapping[int, tuple[Regime, ...]] = dataclasses.field(default_factory=dict)
    """Regimes (batch sizes over time) by job row; a job without an entry keeps its batch size."""
    searches: Mapping[int, SimulatedSearch] = dataclasses.field(default_factory=dict)
    """Searches by app row; the jobs of an app without an entry are independent runs."""
    exclusive_seconds: Reals | None = None
    """[job] seconds to run alone by the trace's own profile (rho's denominator); None: computed from true speeds."""
    reference_type: str | None = None
    """The GPU type to which ``seconds_per_iteration`` refers (case-insensitive); None: unknown, which is an error on a
    cluster of several types with a performance model whose speeds depend on the type."""
    assumed_speeds: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Assumptions on models that the performance model lacks (empty name: jobs without a model): the name whose speeds
    are used, or None if the jobs' own times apply on every GPU type. Set by ``simulate(unknown_models=...)``."""
    source: str = ""
    """The format or the generator, as text."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    """Changes that a reader made without dropping rows, a sentence each, such as sorted arrivals or drawn models."""

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
        """Return a workload in which each id is an app with the single job ``id/0``; rows may be in any order.

        Args:
            name: name of the workload, such as the file's.
            ids: distinct ids of the apps.
            users: user of each app; None: one user, ``all``.
            arrival_seconds: arrival of each app, in seconds.
            gpus: gang size of each app.
            iterations: iterations of each app.
            seconds_per_iteration: seconds per iteration of each app at its gang; NaN: from the performance model.
            models: model of each app; None: unknown.
            more: further fields of ``JobColumns`` (in the order of ``ids``) and of ``Workload``.
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
    """Return a workload's fields that are indexed by job row, in a new order of rows."""
    place = np.argsort(order)
    regimes, exclusive = dict(rest.pop("regimes", {})), rest.pop("exclusive_seconds", None)
    return rest | {
        "regimes": {int(place[row]): value for row, value in regimes.items()},
        "exclusive_seconds": None if exclusive is None else np.asarray(exclusive, float)[order],
    }


def _coded(texts: Sequence[str | None]) -> tuple[list[str], Ints]:
    """Return the distinct texts, sorted, and for each row the index of its text; -1: None or empty."""
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
