"""Eunomia's own traces, CSV or Parquet, with one row per job: apps with several jobs, adapting batch sizes, searches.

``docs/reference/traces.md`` describes the schema; ``writing`` writes such traces, and they read back unchanged.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import polars as pl

from eunomia.errors import InputError
from eunomia.model.adaptations import MODES
from eunomia.units import Ints, Reals
from eunomia.words import did_you_mean
from eunomia_appmaster.csv_cells import plain_frame
from eunomia_testbed.traces.building import drawn_model
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_ITERATIONS, MOST_SECONDS, Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import TextTable, read_table, resembles
from eunomia_testbed.workload import AppColumns, JobColumns, Regime, SimulatedSearch, UserColumns, Workload

REQUIRED: Final = ("job", "arrival_seconds", "most_gpus", "iterations")
NUMBERS: Final = {
    "cpus_per_gpu": 0.0,
    "memory_gib_per_gpu": 0.0,
    "batch_size": 0.0,
    "epochs": 0.0,
    "samples_per_epoch": 0.0,
    "weight": 0.0,
    "gpu_share": 0.0,
    "first_batch_iterations": 0.0,
}
"""Optional numeric columns of ``JobColumns``, with their lower bounds."""
ABOVE: Final = frozenset({"gpu_share", "batch_size", "epochs", "samples_per_epoch"})
"""Columns whose lower bound is exclusive."""
ROUNDING: Final = 1e-6
MOST_WEIGHT: Final = 1e6

T = TypeVar("T")


class OwnReader:
    """A reader of traces by ``write_trace``, and of other tables that have the four required columns."""

    format: ClassVar[str] = "eunomia"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the trace is a Parquet file, or its header has at least half of the required columns."""
        return head == "PAR1" or resembles(head, REQUIRED)

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a trace in Eunomia's format; errors and options are those of ``TraceReader.read``."""
        rows = Rows.of(_parquet(source) if source.is_parquet else _csv(source))
        return _Own(rows, options).workload()


class _Own:
    def __init__(self, rows: Rows, options: ReadOptions) -> None:
        self.rows, self.options = rows, options
        self.known = set(REQUIRED) | set(NUMBERS)
        self.ids = rows.ids("job")
        self.arrivals = rows.arrivals("arrival_seconds")
        self.most = rows.gpus("most_gpus")
        self.least = self.at_least()
        rule = "least_gpus must be at most most_gpus"
        rows.refuse(self.least > self.most, rule, lambda row: f"{self.least[row]} of {self.most[row]}")
        self.iterations = rows.numbers("iterations", above=0.0, most=MOST_ITERATIONS)
        self.seconds = self.number("seconds_per_iteration", above=0.0, most=MOST_SECONDS)
        self.numbers = {
            name: self.number(name, above=least if name in ABOVE else None, least=least)
            for name, least in NUMBERS.items()
            if self.has(name)
        }
        if "gpu_share" in self.numbers:
            rows.refuse(
                self.numbers["gpu_share"] > 1.0, "gpu_share must be at most 1", self.rows.raw("gpu_share").__getitem__
            )
        self.exclusive = self.number("exclusive_seconds", above=0.0, most=MOST_SECONDS)
        self.app_weights = self.number("app_weight", above=0.0, most=MOST_WEIGHT)
        self.user_weights = self.number("user_weight", above=0.0, most=MOST_WEIGHT)
        self.app_arrivals = self.number("app_arrival_seconds", least=0.0, most=MOST_SECONDS)
        self.apps = [job.rpartition("/")[0] or job for job in self.ids]
        self.users = self.texts("user", "all")
        self.models = self.texts("model", "")
        self.regimes = self.parsed("regimes", _regimes)
        self.modes = self.texts("adaptation", "")
        unknown = np.array([bool(mode) and mode not in MODES for mode in self.modes], dtype=bool)
        rows.refuse(unknown, f"adaptation must be one of {', '.join(MODES)}", self.modes.__getitem__)
        self._check_regimes()
        self._check_epochs()
        self.searches = self.parsed("search", _search)

    def _check_regimes(self) -> None:
        """Drop jobs whose regimes have more work than the job, or begin at a batch size that is not the job's."""
        whole, batch = self.iterations, self.numbers.get("batch_size")
        made, first = np.zeros(self.rows.size), np.full(self.rows.size, np.nan)
        for row, life in self.regimes.items():
            made[row], first[row] = math.fsum(part.iterations for part in life), life[0].batch_size
        rule = "regimes must have at most the job's iterations"
        more = made > whole * (1.0 + ROUNDING)
        self.rows.refuse(more, rule, lambda row: f"{made[row]:.10g} of {whole[row]:.10g}")
        if batch is not None:
            rule = "regimes must begin with the job's batch_size"
            other = np.isfinite(first) & np.isfinite(batch) & (first != batch)
            self.rows.refuse(other, rule, lambda row: f"{first[row]:g} where the job has {batch[row]:g}")

    def _check_epochs(self) -> None:
        """Drop jobs whose regimes have more epochs than the job."""
        if not {"epochs", "samples_per_epoch"} <= set(self.numbers):
            return
        epochs, samples = self.numbers["epochs"], self.numbers["samples_per_epoch"]
        made = np.zeros(self.rows.size)
        for row, life in self.regimes.items():
            made[row] = sum(part.iterations / np.ceil(samples[row] / part.batch_size) for part in life)
        rule = "regimes must have at most the job's epochs"
        more = made > epochs * (1.0 + ROUNDING)
        self.rows.refuse(more, rule, lambda row: f"{made[row]:.6g} of {epochs[row]:g}")

    def at_least(self) -> Ints:
        """Return each job's smallest gang; if none is given, its largest."""
        given = self.number("least_gpus", kind="a whole number", least=1.0)
        rule = "least_gpus must be a whole number"
        self.rows.refuse(np.isfinite(given) & (given != np.floor(given)), rule, lambda row: f"{given[row]:g}")
        return np.where(np.isfinite(given), given, self.most).astype(np.int64)

    def has(self, name: str) -> bool:
        self.known.add(name)
        return self.rows.frame is not None and name in self.rows.frame.columns

    def note_columns_not_read(self) -> None:
        """Add a note on each column that the format does not have."""
        columns = [] if self.rows.frame is None else self.rows.frame.columns
        for name in sorted(set(columns) - self.known):
            self.rows.note(f"column {name} is not one of the format's and is not read{did_you_mean(name, self.known)}")

    def number(self, name: str, **bounds: Any) -> Reals:
        if not self.has(name):
            return np.full(self.rows.size, np.nan)
        return self.rows.numbers(name, optional=True, **bounds)

    def texts(self, name: str, otherwise: str) -> list[str]:
        return self.rows.text(name, otherwise=otherwise) if self.has(name) else [otherwise] * self.rows.size

    def parsed(self, name: str, parse: Callable[[Any], T]) -> dict[int, T]:
        """Parse the JSON texts of a column, and return the values by row; rows that cannot be parsed are dropped."""
        found: dict[int, T] = {}
        for row, text in enumerate(self.texts(name, "")):
            if not text or not self.rows.good[row]:
                continue
            try:
                found[row] = parse(json.loads(text))
            except (ValueError, TypeError, KeyError, RecursionError):
                broken = np.zeros(self.rows.size, dtype=bool)
                broken[row] = True
                self.rows.refuse(broken, f"{name} must be JSON as the reference says", self.rows.raw(name).__getitem__)
        return found

    def workload(self) -> Workload:
        rows, options = self.rows, self.options
        rows.finish(strict=options.strict)
        wanted = set(options.users)
        asked = rows.good & np.array([not wanted or user in wanted for user in self.users])
        if not asked.any():
            raise InputError("a trace must hold jobs of the users asked for", value=", ".join(wanted), place=rows.file)
        names, app_of, order = self._order(np.flatnonzero(asked))
        users = sorted({self.users[row] for row in order.tolist()})
        first = _first(app_of)
        head = order[first]
        arrivals = np.where(np.isnan(self.app_arrivals[head]), self.arrivals[head], self.app_arrivals[head])
        place = {int(row): number for number, row in enumerate(order)}
        kinds = self._models(order)
        models = sorted({kind for kind in kinds if kind})
        index = {kind: number for number, kind in enumerate(models)}
        owner = {user: number for number, user in enumerate(users)}
        measured = [self.texts("reference_type", "")[row] or None for row in order.tolist()]
        types = set(measured)
        one = len(types) == 1
        exclusive = self.exclusive[order] if self.has("exclusive_seconds") else None
        model = np.array([index.get(kind, -1) for kind in kinds], dtype=np.int64)
        jobs = self._jobs(order, app_of, model, None if one else measured)
        self.note_columns_not_read()
        return Workload(
            name=rows.file,
            users=UserColumns(id=users, weight=self._user_weights(users, order)),
            apps=AppColumns(
                id=names,
                user=np.array([owner[self.users[row]] for row in head.tolist()], dtype=np.int64),
                weight=np.nan_to_num(self.app_weights[head], nan=1.0),
                arrival_seconds=arrivals,
            ),
            jobs=jobs,
            models=tuple(models),
            regimes={place[row]: life for row, life in self.regimes.items() if row in place},
            searches={int(app_of[place[row]]): search for row, search in self.searches.items() if row in place},
            exclusive_seconds=exclusive,
            reference_type=measured[0] if one else None,
            source="Eunomia",
            dropped=tuple(rows.dropped),
            notes=tuple(rows.notes),
        )

    def _order(self, chosen: Ints) -> tuple[list[str], Ints, Ints]:
        """Return apps in order of arrival, the app of each job, and the rows of jobs by app, in order of arrival."""
        starts: dict[str, float] = {}
        for row in chosen.tolist():
            app, given = self.apps[row], self.app_arrivals[row]
            came = float(self.arrivals[row] if np.isnan(given) else given)
            starts[app] = min(starts.get(app, np.inf), came)
        names = sorted(starts, key=lambda app: starts[app])  # the sort is stable: equal arrivals as in the file
        number = {app: place for place, app in enumerate(names)}
        app_of = np.array([number[self.apps[row]] for row in chosen.tolist()], dtype=np.int64)
        order = np.lexsort((chosen, app_of, self.arrivals[chosen]))
        kept = order[: self.options.first_jobs]
        used = np.unique(app_of[kept])
        return [names[app] for app in used.tolist()], np.searchsorted(used, app_of[kept]), chosen[kept]

    def _models(self, order: Ints) -> list[str]:
        rows = order.tolist()
        kinds = [self.models[row] for row in rows]
        missing = sum(not kind for kind in kinds)
        if not missing or not self.options.models:
            return kinds
        seed, known = self.options.seed, self.options.models
        self.rows.note(f"models drawn for {missing} jobs by their id and seed {seed}, from {len(known)} models")
        return [kind or drawn_model(known, self.ids[row], seed) for kind, row in zip(kinds, rows, strict=True)]

    def _user_weights(self, users: list[str], order: Ints) -> Reals:
        given: dict[str, float] = {}
        for row in order.tolist():
            if not np.isnan(self.user_weights[row]):
                given.setdefault(self.users[row], float(self.user_weights[row]))
        return np.array([given.get(user, 1.0) for user in users])

    def _jobs(self, order: Ints, app_of: Ints, model: Ints, measured: list[str | None] | None) -> JobColumns:
        rows = order.tolist()
        types = self.texts("gpu_type", "")
        return JobColumns(
            id=[job if "/" in job else f"{job}/0" for job in (self.ids[row] for row in rows)],
            app=app_of,
            arrival_seconds=self.arrivals[order],
            least=self.least[order],
            most=self.most[order],
            iterations=self.iterations[order],
            seconds_per_iteration=self.seconds[order],
            model=model,
            gpu_type=[types[row] or None for row in rows] if self.has("gpu_type") else None,
            adaptation=[self.modes[row] or "static" for row in rows] if self.has("adaptation") else None,
            measured_on=measured,
            **{name: column[order] for name, column in self.numbers.items()},
        )


def _csv(source: TraceSource) -> TextTable:
    table = read_table(source, required=REQUIRED, format_name="eunomia")
    return dataclasses.replace(table, frame=plain_frame(table.frame)) if b"'" in source.data else table


def _parquet(source: TraceSource) -> TextTable:
    """Return a Parquet file as a table of text, with rows counted from 1."""
    try:
        frame = pl.read_parquet(source.data).cast(pl.String)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError("a Parquet file must be whole", value=str(error).split("\n")[0], place=source.name) from error
    missing = [name for name in REQUIRED if name not in frame.columns]
    if missing:
        rule = f"a trace of format eunomia must have columns {', '.join(REQUIRED)}"
        raise InputError(rule, value=f"no {', '.join(missing)}", place=source.name)
    return TextTable(file=source.name, frame=frame, lines=np.arange(1, frame.height + 1, dtype=np.int64))


def _first(app_of: Ints) -> Ints:
    """Return the first job of each app."""
    return np.unique(app_of, return_index=True)[1].astype(np.int64)


def _regimes(tree: Any) -> tuple[Regime, ...]:
    """Parse ``[[iterations, batch size, seconds per iteration or null], ...]``."""
    life = tuple(
        Regime(
            iterations=float(iterations),
            batch_size=float(batch),
            seconds_per_iteration=np.nan if seconds is None else float(seconds),
        )
        for iterations, batch, seconds in tree
    )
    if not life or not all(part.iterations > 0.0 and part.batch_size > 0.0 for part in life):
        raise ValueError("regimes")
    if any(part.seconds_per_iteration <= 0.0 for part in life):
        raise ValueError("seconds of an iteration")
    return life


def _search(tree: Mapping[str, Any]) -> SimulatedSearch:
    """Parse the fields of ``SimulatedSearch``."""
    curves = tuple(tuple(float(number) for number in curve) for curve in tree.get("curves", ()))
    return SimulatedSearch(**{**tree, "curves": curves})
