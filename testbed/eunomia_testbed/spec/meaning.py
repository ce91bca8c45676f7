"""Determines, before a run, the GPU types of a workload's times and the speeds of its models on a cluster."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import numpy as np

from eunomia.errors import InputError, InputErrors
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.units import Bools, Locality, Reals
from eunomia.words import shown
from eunomia_testbed.performance import PerformanceModel, Setting
from eunomia_testbed.performance.names import SpeedNames, ignores_type
from eunomia_testbed.performance.reading import plain
from eunomia_testbed.results.assumptions import SpeedAssumption
from eunomia_testbed.simulator.progress.hours import (
    UNKNOWN_MODEL,
    check_regimes,
    has_time,
    looked_up_in,
    no_hours,
    times_of,
    without_hours,
)
from eunomia_testbed.spec.extent import gpu_hours
from eunomia_testbed.spec.unknown_models import DROP, EQUAL, Choices, UnknownModel, assumed_of, choices_of
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.selecting import without_jobs

DROPPED: Final = "a job's model must have a speed in --speeds, unless --unknown-models says what it takes"


@builds
class Meaning:
    """Workloads by seed with known GPU types and speeds, and the assumptions by which they are known."""

    workloads: Mapping[int, Workload]
    assumptions: tuple[SpeedAssumption, ...]


@builds
class Question:
    """The parts of a spec that determine the GPU types and speeds of times and models.

    Attributes:
        cluster: the cluster.
        models: the speed source; None: no speed source is given.
        equal: whether all GPU types are declared equally fast.
        unknown_models: the texts of ``--unknown-models``.
        place: returns the name of a field of the spec for errors.
    """

    cluster: Cluster
    models: PerformanceModel | None
    equal: bool
    unknown_models: tuple[str, ...]
    place: Callable[[str], str]


def settled(workloads: Mapping[int, Workload], question: Question) -> Meaning:
    """Return the workloads as they are simulated; resamples and windows are made from these.

    Raises:
        InputError: no job requires a GPU type of the cluster, or there is no speed source although the cluster has
            several types, or lacks the type of the times.
        InputErrors: times of an unknown GPU type, or models or GPU types that the speed source lacks.
    """
    seeds: dict[int, list[int]] = {}
    each: dict[int, Workload] = {}
    for seed, workload in workloads.items():
        seeds.setdefault(id(workload), []).append(seed)
        each[id(workload)] = workload
    if len(each) == 1:
        seeds = {key: [] for key in each}
    spelt = {key: _spelt(workload, question.cluster) for key, workload in each.items()}
    models = question.models
    if models is None:
        _check_without_speeds(spelt.values(), question)
        for workload in spelt.values():
            check_regimes(workload, [True] * workload.size)
        made = {key: _all_equal(workload, question.cluster, seeds[key]) for key, workload in spelt.items()}
    else:
        made = _by_speeds(spelt, seeds, question, models)
    settled_ones = {seed: made[id(workload)][0] for seed, workload in workloads.items()}
    return Meaning(workloads=settled_ones, assumptions=tuple(one for key in made for one in made[key][1]))


# -- GPU types


def _spelt(workload: Workload, cluster: Cluster) -> Workload:
    """Return the workload with required GPU types spelled as in the cluster.

    Raises:
        InputError: every job requires a type that the cluster lacks.
    """
    named = workload.jobs.gpu_type
    if named is None or not workload.size:
        return workload
    there = {plain(name): name for name in cluster.gpu_types}
    if all(name and plain(name) not in there for name in named):
        counts = {name: list(named).count(name) for name in sorted({name for name in named if name})}
        value = ", ".join(f"{name} ({count} job{'s' * (count != 1)})" for name, count in counts.items())
        rule = f"a job of the trace must require a GPU type of the cluster, {', '.join(cluster.gpu_types)}"
        raise InputError(rule, value=f"gpu_type {value}", place=workload.name)
    types = [there.get(plain(name), name) if name else None for name in named]
    return dataclasses.replace(workload, jobs=dataclasses.replace(workload.jobs, gpu_type=types))


def _free(workload: Workload) -> Bools:
    """Return a mask of the jobs that may run on any GPU type."""
    named = workload.jobs.gpu_type
    return np.ones(workload.size, dtype=bool) if named is None else np.array([not name for name in named], dtype=bool)


def _elsewhere(workload: Workload, cluster: Cluster) -> list[str]:
    """Return the GPU types of the trace's times that the cluster lacks, for jobs that may run on any type."""
    hours = times_of(workload, cluster)
    used = set(hours.measured[_free(workload) & has_time(workload)].tolist())
    return [name for number, name in enumerate(hours.types) if number >= len(cluster.gpu_types) and number in used]


# -- no speed source


def _check_without_speeds(workloads: Iterable[Workload], question: Question) -> None:
    types = ", ".join(question.cluster.gpu_types)
    if question.unknown_models:
        rule = "unknown models must stand with a speed source, which lacks them (--speeds FILE or analytic)"
        value = "--speeds equal, which needs no names" if question.equal else "none"
        raise InputError(rule, value=value, place=question.place("unknown_models"))
    if question.equal:
        return
    for workload in workloads:
        if len(question.cluster.gpu_types) > 1 and bool(_free(workload).any()):
            rule = (
                f"a cluster of several GPU types ({types}) must have a speed source: --speeds FILE, analytic, "
                "or equal where all types are equally fast"
            )
            raise InputError(rule, value="none", place=question.place("speeds"))
        there = _elsewhere(workload, question.cluster)
        if there:
            rule = (
                f"times of a GPU type that the cluster ({types}) lacks must have a speed source that scales them: "
                "--speeds FILE, analytic, or equal where the types are equally fast"
            )
            raise InputError(rule, value=f"none for times of {', '.join(there)}", place=question.place("speeds"))


def _all_equal(workload: Workload, cluster: Cluster, seeds: list[int]) -> tuple[Workload, list[SpeedAssumption]]:
    """Return the workload unchanged, with an assumption of equal speeds if GPU types could differ."""
    if len(cluster.gpu_types) == 1 and not _elsewhere(workload, cluster):
        return workload, []
    rows = _free(workload)
    one = _Lacking(workload=workload, seeds=tuple(seeds), names=(), hours=gpu_hours(workload))
    return workload, [_assumption("equal", rows, one)] if rows.any() else []


# -- a speed source


@builds
class _Lacking:
    """The models of a workload that the speed source lacks.

    Attributes:
        workload: the workload.
        seeds: the seeds of the workload; empty: all.
        names: for each job, the names that the speed source lacks, at the batch sizes of its regimes; empty: none.
        hours: [job] GPU-hours by the job's own times; NaN: the job has no times.
    """

    workload: Workload
    seeds: tuple[int, ...]
    names: tuple[tuple[str, ...], ...]
    hours: Reals


def _by_speeds(
    workloads: Mapping[int, Workload], seeds: Mapping[int, list[int]], question: Question, models: PerformanceModel
) -> dict[int, tuple[Workload, list[SpeedAssumption]]]:
    place = question.place("unknown_models")
    choices = choices_of(question.unknown_models, models.models, place)
    lacking = {
        key: _Lacking(
            workload=workload,
            seeds=tuple(seeds[key]),
            names=_lacked(workload, question.cluster, models),
            hours=gpu_hours(workload),
        )
        for key, workload in workloads.items()
    }
    errors = _hours_unknown(lacking.values(), choices, question, models)
    assumed: dict[str, str | None] = {}
    dropped: frozenset[str] = frozenset()
    try:
        assumed, dropped = assumed_of(_unknown(lacking.values()), choices, models, place)
    except InputErrors as found:
        errors += found.errors
    if not errors:
        made = {key: _assumed_in(one, assumed, dropped, question.cluster, models) for key, one in lacking.items()}
        errors += _types_unknown([workload for workload, _ in made.values()], question, models)
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return made


def _lacked(workload: Workload, cluster: Cluster, models: PerformanceModel) -> tuple[tuple[str, ...], ...]:
    names, jobs = SpeedNames(models, {}), workload.jobs
    found: dict[tuple[str, float | None], str | None] = {}

    def lacked(model: str, batch: float) -> str | None:
        key = (model, batch if batch == batch else None)
        if key not in found:
            found[key] = names.lacked(*key)
        return found[key]

    batches = np.full(workload.size, np.nan) if jobs.batch_size is None else jobs.batch_size
    rows: list[tuple[str, ...]] = []
    looked_up = looked_up_in(workload, cluster).tolist()
    for job, (kind, batch, looks) in enumerate(zip(jobs.model.tolist(), batches.tolist(), looked_up, strict=True)):
        model = workload.models[kind] if kind >= 0 else UNKNOWN_MODEL
        sizes = [batch, *(regime.batch_size for regime in workload.regimes.get(job, ()))]
        each = (lacked(model, size) for size in sizes) if looks else ()
        rows.append(tuple(dict.fromkeys(name for name in each if name is not None)))
    return tuple(rows)


def _unknown(lacking: Iterable[_Lacking]) -> list[UnknownModel]:
    """Return the models that the speed source lacks, over all workloads."""
    rows: dict[str, list[float]] = {}
    timed: dict[str, bool] = {}
    for one in lacking:
        has = has_time(one.workload)
        for job, names in enumerate(one.names):
            for name in names:
                rows.setdefault(name, []).append(float(one.hours[job]))
                timed[name] = timed.get(name, True) and bool(has[job])
    return [
        UnknownModel(
            name=name,
            jobs=len(hours),
            gpu_hours=None if np.isnan(hours).any() else float(np.sum(hours)),
            timed=timed[name],
        )
        for name, hours in rows.items()
    ]


def _hours_unknown(
    lacking: Iterable[_Lacking], choices: Choices, question: Question, models: PerformanceModel
) -> list[InputError]:
    """Return the error for times of an unknown GPU type, if speeds depend on it."""
    for one in lacking:
        workload = one.workload
        own = [workload.models[kind] if kind >= 0 else UNKNOWN_MODEL for kind in workload.jobs.model.tolist()]
        taken = [_chosen(choices, names) if names else model for model, names in zip(own, one.names, strict=True)]
        if without_hours(workload, question.cluster, models, taken).size:
            return [no_hours(question.cluster, "--set trace.reference_type=TYPE; in Python Workload.reference_type")]
    return []


def _chosen(choices: Choices, names: Sequence[str]) -> str | None:
    """Return the model name for a job's speed; None: the job's own times apply, or the job is left out."""
    chosen = {choices.of(name) or name for name in names}
    return None if chosen <= {EQUAL, DROP} else next(iter(chosen - {EQUAL, DROP}))


def _types_unknown(workloads: Iterable[Workload], question: Question, models: PerformanceModel) -> list[InputError]:
    """Return an error for each GPU type, of the cluster or of times, that the speed source lacks."""
    errors: dict[str, InputError] = {}
    for workload in workloads:
        names = SpeedNames(models, workload.assumed_speeds)
        looked_up = looked_up_in(workload, question.cluster)
        kinds = np.unique(workload.jobs.model[looked_up]).tolist()
        types = [*question.cluster.gpu_types, *_elsewhere(workload, question.cluster)]
        for model in (workload.models[kind] if kind >= 0 else UNKNOWN_MODEL for kind in kinds):
            error = _first_error(models, names, model, types)
            if error is not None:
                errors.setdefault(str(error), error)
    return list(errors.values())


def _first_error(models: PerformanceModel, names: SpeedNames, model: str, types: Sequence[str]) -> InputError | None:
    try:
        taken = names.of(model, None)
    except InputError:
        return None  # a model that has speeds only at its jobs' batch sizes
    if taken is None:
        return None
    for kind in types:
        try:
            models.rate(taken.name, Setting(gpus=1, gpu_type=kind, locality=Locality.ISLAND))
        except InputError as error:
            return error
    return None


def _assumed_in(
    one: _Lacking,
    assumed: Mapping[str, str | None],
    dropped: frozenset[str],
    cluster: Cluster,
    models: PerformanceModel,
) -> tuple[Workload, list[SpeedAssumption]]:
    """Return a workload with the assumptions on its models' speeds applied, and the assumptions themselves."""
    workload, names = one.workload, one.names
    left = np.array([any(name in dropped for name in of_job) for of_job in names], dtype=bool)
    apps = np.array([app in workload.searches for app in workload.jobs.app.tolist()], dtype=bool)
    left |= apps & np.isin(workload.jobs.app, np.unique(workload.jobs.app[left]))  # a search needs all its trials
    if left.all() and workload.size:
        rule = "a trace must hold a job whose model has speeds, or is not left out"
        raise InputError(rule, value=f"{workload.size} jobs, all left out", place=workload.name)
    kept = {name: other for name, other in assumed.items() if any(name in of_job for of_job in names)}
    equal = ~left & (_equal(workload, names, kept) | _alike(workload, names, cluster, models))
    made = [_assumption("equal", equal, one, names=_names_of(names, equal))] if equal.any() else []
    for other in sorted({other for other in kept.values() if other is not None}):
        rows = ~left & np.array([any(kept.get(name) == other for name in of_job) for of_job in names], dtype=bool)
        made += [_assumption("as", rows, one, names=_names_of(names, rows), model=other)] if rows.any() else []
    made += [_assumption("drop", left, one, names=_names_of(names, left))] if left.any() else []
    workload = dataclasses.replace(workload, assumed_speeds=kept)
    if left.any():
        values = [shown(of_job[0]) if of_job and of_job[0] else "no model" for of_job in names]
        workload = without_jobs(workload, left, DROPPED, values)
    return workload, made


def _equal(workload: Workload, names: Sequence[Sequence[str]], kept: Mapping[str, str | None]) -> Bools:
    """Return a mask of the jobs whose model is assumed to be equally fast everywhere."""
    return np.array([any(name in kept and kept[name] is None for name in of_job) for of_job in names], dtype=bool)


def _alike(workload: Workload, names: Sequence[Sequence[str]], cluster: Cluster, models: PerformanceModel) -> Bools:
    """Return a mask of the jobs whose model has the same speed on all GPU types, if types could differ."""
    if len(cluster.gpu_types) == 1 and not _elsewhere(workload, cluster):
        return np.zeros(workload.size, dtype=bool)
    alike = np.array([*(ignores_type(models, name) for name in workload.models), False], dtype=bool)
    known = np.array([not of_job for of_job in names], dtype=bool)
    rows: Bools = alike[workload.jobs.model] & known & _free(workload)
    return rows


def _names_of(names: Sequence[Sequence[str]], rows: Bools) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in np.flatnonzero(rows).tolist() for name in names[row]))


def _assumption(
    kind: Literal["equal", "as", "drop"], rows: Bools, one: _Lacking, *, names: tuple[str, ...] = (), model: str = ""
) -> SpeedAssumption:
    known = not np.isnan(one.hours).any()
    return SpeedAssumption(
        seeds=one.seeds,
        kind=kind,
        names=names,
        jobs=int(rows.sum()),
        of_jobs=one.workload.size,
        gpu_hours=float(one.hours[rows].sum()) if known else None,
        of_gpu_hours=float(one.hours.sum()) if known else None,
        model=model,
    )
