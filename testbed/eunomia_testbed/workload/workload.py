"""A workload: who wants what and when, as columns, so that a hundred thousand jobs are no hundred thousand objects.

It is what arrives, in the words of its trace; how fast a job really is stands in ``eunomia_testbed.performance``.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from eunomia.shapes import builds, value
from eunomia.units import Ints, Reals
from eunomia_testbed.workload.dropped import Dropped
from eunomia_testbed.workload.search import SimulatedSearch


@value
class Regime:
    """A stretch of a job's life with one batch size."""

    iterations: float
    """Optimizer steps of this stretch, at its own batch size."""
    batch_size: float
    seconds_per_iteration: float
    """At the job's requested GPUs, alone; NaN: as the performance model says for that batch size."""


@builds
class UserColumns:
    """Users, a row each."""

    id: Sequence[str]
    weight: Reals


@builds
class AppColumns:
    """Apps, a row each, in order of arrival."""

    id: Sequence[str]
    user: Ints
    """Row of the user."""
    weight: Reals
    arrival_seconds: Reals


@builds
class JobColumns:
    """Jobs, a row each, in order of arrival; jobs of one app stand together where they arrive together."""

    id: Sequence[str]
    """``app/number``."""
    app: Ints
    """Row of the app."""
    arrival_seconds: Reals
    """Since the start of the simulation: the first arrival of the trace is at 0, unless the trace says otherwise."""
    least: Ints
    """Smallest gang in GPUs."""
    most: Ints
    """Largest gang in GPUs: what the trace asks for."""
    iterations: Reals
    """Whole work in optimizer steps, of all regimes. A trace of durations has one step a second at ``most`` GPUs."""
    seconds_per_iteration: Reals
    """At ``most`` GPUs, alone, side by side, on the type that the trace means; NaN: the performance model says."""
    model: Ints
    """Index into ``Workload.models``; -1: the trace does not tell and no rule gave one."""
    gpu_type: Sequence[str | None] | None = None
    """The GPU type that a job insists on; None: any."""
    cpus_per_gpu: Reals | None = None
    memory_gib_per_gpu: Reals | None = None
    batch_size: Reals | None = None
    """At the start; None: unknown."""
    weight: Reals | None = None
    gpu_share: Reals | None = None
    """The part of each of its GPUs that a job asks for, at most 1; None: whole GPUs."""
    adaptation: Sequence[str] | None = None
    """How a job changes its batch size by itself: ``static``, ``accordion`` or ``gns``; None: all static."""
    first_batch_iterations: Reals | None = None
    """Whole work in steps of the first batch size, as the trace has it; None: ``iterations``."""


@builds
class Workload:
    """All that is to be run, and what of its trace is not."""

    name: str
    users: UserColumns
    apps: AppColumns
    jobs: JobColumns
    models: tuple[str, ...] = ()
    """Names of models as performance models know them, such as ``ResNet-18 (batch size 32)``."""
    regimes: Mapping[int, tuple[Regime, ...]] = dataclasses.field(default_factory=dict)
    """By job row: its batch sizes over time; not named: one regime."""
    searches: Mapping[int, SimulatedSearch] = dataclasses.field(default_factory=dict)
    """By app row: how its app master searches; not named: its jobs are independent runs."""
    exclusive_seconds: Reals | None = None
    """By job: run time alone as the trace's own profile tells it (rho's denominator); None: from the truth."""
    reference_type: str | None = None
    """The GPU type on which ``seconds_per_iteration`` holds, in any case; None: the cluster's most frequent."""
    source: str = ""
    """The format or generator, in words."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader changed without dropping it, a sentence each: arrivals that it sorted, models that it drew."""

    @property
    def size(self) -> int:
        """How many jobs there are."""
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
        """Make each job an app of its own, named as the job, its job ``app/0``; rows may come in any order.

        Args:
            name: of the workload, such as the file's.
            ids: of the apps, all different.
            users: by app; None: one user, ``all``.
            arrival_seconds: by app.
            gpus: by app, its gang.
            iterations: by app.
            seconds_per_iteration: by app, at its gang; NaN: the performance model says.
            models: by app; None: not told.
            more: further fields of ``JobColumns`` (in the order given) and ``Workload``.
        """
        order = np.lexsort((np.arange(len(ids)), arrival_seconds))
        of_job = {field.name for field in dataclasses.fields(JobColumns)}
        names, user_rows = _coded(["all"] * len(ids) if users is None else [user or "all" for user in users])
        kinds, kind_rows = ([], np.full(len(ids), -1)) if models is None else _coded(models)
        jobs = JobColumns(
            id=[f"{ids[row]}/0" for row in order],
            app=np.arange(len(ids), dtype=np.int64),
            arrival_seconds=np.asarray(arrival_seconds, float)[order],
            least=np.asarray(gpus, np.int64)[order],
            most=np.asarray(gpus, np.int64)[order],
            iterations=np.asarray(iterations, float)[order],
            seconds_per_iteration=np.asarray(seconds_per_iteration, float)[order],
            model=kind_rows[order],
            **{key: _ordered(column, order) for key, column in more.items() if key in of_job},  # type: ignore[arg-type]
        )
        apps = AppColumns(
            id=[ids[row] for row in order],
            user=user_rows[order],
            weight=np.ones(len(ids)),
            arrival_seconds=jobs.arrival_seconds,
        )
        rest = {key: column for key, column in more.items() if key not in of_job}
        place = np.argsort(order)
        regimes = {int(place[row]): value for row, value in dict(rest.pop("regimes", {})).items()}  # type: ignore[call-overload]
        exclusive = rest.pop("exclusive_seconds", None)
        return cls(
            name=name,
            users=UserColumns(id=names, weight=np.ones(len(names))),
            apps=apps,
            jobs=jobs,
            models=tuple(kinds),
            regimes=regimes,
            exclusive_seconds=None if exclusive is None else np.asarray(exclusive, float)[order],
            **rest,  # type: ignore[arg-type]
        )


def _coded(texts: Sequence[str | None]) -> tuple[list[str], Ints]:
    """The different texts, sorted, and by row the index of its own; -1: None or empty."""
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
