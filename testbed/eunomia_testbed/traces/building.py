"""Builds a workload from checked columns: valid rows in order of arrival, with drawn models if the trace has none."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Bools, Ints, Reals
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_SECONDS, Rows
from eunomia_testbed.workload import Regime, Workload


@builds
class Jobs:
    """Columns of a trace whose apps have one job each, a row for each row of the file; ``JobColumns`` defines them."""

    ids: Sequence[str]
    arrival_seconds: Reals
    gpus: Ints
    iterations: Reals
    seconds_per_iteration: Reals | None = None
    """Seconds per iteration of each job; None: unknown."""
    users: Sequence[str] | None = None
    models: Sequence[str | None] | None = None
    gpu_type: Sequence[str | None] | None = None
    cpus_per_gpu: Reals | None = None
    memory_gib_per_gpu: Reals | None = None
    batch_size: Reals | None = None
    epochs: Reals | None = None
    samples_per_epoch: Reals | None = None
    measured_on: Sequence[str | None] | None = None
    weight: Reals | None = None
    gpu_share: Reals | None = None
    adaptation: Sequence[str] | None = None
    first_batch_iterations: Reals | None = None
    exclusive_seconds: Reals | None = None
    regimes: Mapping[int, tuple[Regime, ...]] | None = None


_COLUMNS = (
    "gpu_type",
    "measured_on",
    "cpus_per_gpu",
    "memory_gib_per_gpu",
    "batch_size",
    "epochs",
    "samples_per_epoch",
    "weight",
    "gpu_share",
    "adaptation",
    "first_batch_iterations",
    "exclusive_seconds",
)


def build(
    rows: Rows,
    jobs: Jobs,
    options: ReadOptions,
    *,
    source: str,
    ordered: str | None = None,
    absolute: bool = False,
    reference_type: str | None = None,
) -> Workload:
    """Return the workload of the valid rows.

    Args:
        rows: the valid and the dropped rows.
        jobs: their columns.
        options: the user's options.
        source: the format, as text.
        ordered: the column by which rows must be ordered; if strict, the first row out of order is an error.
        absolute: whether arrivals are calendar times; the first one becomes 0.
        reference_type: the GPU type of the times per iteration; None: the trace has none.

    Raises:
        InputError: no row is left, or, if strict, a row was dropped or out of order.
    """
    _order(rows, jobs.arrival_seconds, options, ordered)
    _within(rows, jobs.arrival_seconds)
    rows.finish(strict=options.strict)
    chosen = _chosen(rows, jobs, options)
    models = _models(rows, jobs, options, chosen)
    arrivals = jobs.arrival_seconds[chosen]
    if absolute:
        arrivals = arrivals - float(np.min(jobs.arrival_seconds[rows.good]))
    speeds = np.full(rows.size, np.nan) if jobs.seconds_per_iteration is None else jobs.seconds_per_iteration
    new = {row: number for number, row in enumerate(chosen.tolist())} if jobs.regimes else {}
    regimes = {new[row]: value for row, value in (jobs.regimes or {}).items() if row in new}
    return Workload.single_jobs(
        rows.file,
        ids=_picked(jobs.ids, chosen),
        users=None if jobs.users is None else _picked(jobs.users, chosen),
        arrival_seconds=arrivals,
        gpus=jobs.gpus[chosen],
        iterations=jobs.iterations[chosen],
        seconds_per_iteration=speeds[chosen],
        models=models,
        **{name: _column(getattr(jobs, name), chosen) for name in _COLUMNS},
        regimes=regimes,
        reference_type=reference_type,
        source=source,
        dropped=tuple(rows.dropped),
        notes=tuple(rows.notes),
    )


def drawn_model(models: Sequence[str], job: str, seed: int) -> str:
    """Draw a model for a job without one in its trace, depending only on the job's id and the seed.

    The index is the first 8 bytes of BLAKE2b over ``<seed>/<id>`` as a big-endian number, modulo the number of models.
    A model that is listed twice is drawn twice as often.
    """
    digest = hashlib.blake2b(f"{seed}/{job}".encode(), digest_size=8).digest()
    return models[int.from_bytes(digest, "big") % len(models)]


def _order(rows: Rows, arrivals: Reals, options: ReadOptions, ordered: str | None) -> None:
    times = arrivals[rows.good]
    late = np.flatnonzero(times[1:] < np.maximum.accumulate(times)[:-1]) + 1
    if not late.size:
        return
    first = int(np.flatnonzero(rows.good)[late[0]])
    if ordered is not None and options.strict:
        broken = np.zeros(rows.size, dtype=bool)
        broken[first] = True
        rows.refuse(broken, f"{ordered} must not be earlier than in a line before", lambda row: f"{arrivals[row]:g}")
    rows.note(f"sorted by arrival: {late.size} of {times.size} rows were out of order, first line {rows.lines[first]}")


def _within(rows: Rows, arrivals: Reals) -> None:
    if rows.good.any():
        first = float(np.min(arrivals[rows.good]))
        rule = "a job must arrive within 100 years of the first"
        rows.refuse(arrivals - first > MOST_SECONDS, rule, lambda row: f"{arrivals[row]:.15g}")


def _chosen(rows: Rows, jobs: Jobs, options: ReadOptions) -> Ints:
    """Return the valid rows that the user selected, in order of arrival."""
    asked: Bools = rows.good.copy()
    if options.users:
        wanted = set(options.users)
        users = jobs.users if jobs.users is not None else ["all"] * rows.size
        asked &= np.fromiter((user in wanted for user in users), dtype=bool, count=rows.size)
    chosen = np.flatnonzero(asked)
    chosen = chosen[np.argsort(jobs.arrival_seconds[chosen], kind="stable")]
    if not chosen.size:
        from eunomia.errors import InputError

        raise InputError(
            "a trace must hold jobs of the users asked for", value=", ".join(options.users), place=rows.file
        )
    return chosen[: options.first_jobs]


def _models(rows: Rows, jobs: Jobs, options: ReadOptions, chosen: Ints) -> list[str | None] | None:
    if jobs.models is None and not options.models:
        return None
    given: list[str | None] = [None] * chosen.size if jobs.models is None else _picked(jobs.models, chosen)
    if not options.models or all(given):
        return given
    ids = _picked(jobs.ids, chosen)
    missing = sum(model is None for model in given)
    rows.note(f"models drawn for {missing} jobs by their id and seed {options.seed}, from {len(options.models)} models")
    return [model or drawn_model(options.models, job, options.seed) for model, job in zip(given, ids, strict=True)]


def _picked(column: Sequence[str] | Sequence[str | None], rows: Ints) -> list:  # type: ignore[type-arg]
    if isinstance(column, list) and rows.size == len(column) and np.array_equal(rows, np.arange(rows.size)):
        return column
    return [column[row] for row in rows.tolist()]


def _column(column: object, chosen: Ints) -> object:
    if column is None or isinstance(column, np.ndarray):
        return None if column is None else column[chosen]
    return _picked(column, chosen)  # type: ignore[arg-type]
