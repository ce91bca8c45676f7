"""Runs one cell and writes its files, and merges the files of finished cells."""

import contextlib
import dataclasses
import functools
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from eunomia_testbed.calls.limits import CallTooLongError
from eunomia_testbed.calls.notes import CallNotes
from eunomia_testbed.calls.page import CallPage
from eunomia_testbed.calls.watch import CallWatch
from eunomia_testbed.metrics.frames import Frames, frames_of
from eunomia_testbed.metrics.serial import serial_seconds
from eunomia_testbed.metrics.type_speeds import type_speeds
from eunomia_testbed.results.plugin_metrics import PluginMetric, metrics_of
from eunomia_testbed.results.writing import write_csv, write_parquet, write_text
from eunomia_testbed.running.memory import hand_back
from eunomia_testbed.running.plan import Cell, Plan
from eunomia_testbed.running.resamples import ResampleFile, read_row, row_of
from eunomia_testbed.simulator import Progress, simulate_one
from eunomia_testbed.simulator.machine_changes import slot_changes, with_all

CELLS: Final = ".cells"
"""The subfolder of a result folder for the files of finished cells while other cells run."""
LARGE: Final = 20_000
"""Number of jobs from which a run is faster if free memory is returned to the system."""
_DONE: Final = "done.json"


def cell_path(folder: Path, cell: Cell) -> Path:
    """Return the folder of a cell's files."""
    return folder / CELLS / cell.folder


def is_done(folder: Path, cell: Cell) -> bool:
    """Return whether the cell has finished and written all its files."""
    return (cell_path(folder, cell) / _DONE).is_file()


def run_cell(
    plan: Plan,
    cell: Cell,
    folder: Path,
    progress: Callable[[Progress], None] | None = None,
    *,
    page: CallPage | None = None,
    unreachable: Callable[[CallTooLongError], None] | None = None,
) -> None:
    """Simulate a cell, and write its tables or a resample's metrics; the last file marks it as complete.

    Args:
        plan: the plan.
        cell: the cell.
        folder: folder of the results.
        progress: called regularly with the progress.
        page: the shared page on which plugin calls are recorded; None: a page of this process.
        unreachable: called to end the process if a plugin catches the exception that should end its call.

    Raises:
        CallTooLongError: a call of a plugin took longer than the plan allows.
    """
    watch = CallWatch(plan.limits, CallNotes(cell.name, page), unreachable)
    workload = plan.workload_of(cell)
    run = simulate_one(
        workload,
        plan.cluster,
        plan.profiles[cell.policy],
        options=plan.options_of(workload, resampled=cell.resampled),
        models=plan.models,
        seed=cell.seed,
        progress=progress,
        watch=watch,
    )
    if workload.size >= LARGE:
        hand_back()
    serial = serial_seconds(workload, plan.cluster, plan.models)
    metrics = _noted(metrics_of(plan.profiles[cell.policy].registry), watch.notes)
    whole = with_all(plan.cluster, plan.options.machines)
    speeds = type_speeds(workload, whole, plan.models)
    frames = frames_of(run, workload, whole, serial_seconds=serial, speeds=speeds, label=cell.label, metrics=metrics)
    dropped: list[dict[str, object]] = [
        {
            "file": workload.name,
            "line": None,
            "rule": each.rule,
            "value": f"{each.value} ({workload.jobs.id[each.job]})",
        }
        for each in run.dropped
    ]
    with watch.limited() if metrics else contextlib.nullcontext():  # writing the tables computes plugins' metrics
        if cell.resampled:
            _write_figures(plan, cell, frames, cell_path(folder, cell))
        else:
            write_cell(cell_path(folder, cell), frames, dropped, draws=run.draws)


def _write_figures(plan: Plan, cell: Cell, frames: Frames, path: Path) -> None:
    facts = {"rho": plan.rho, "unfair_above": plan.unfair_above, "slots": plan.cluster.gpus}
    facts |= {"slot_changes": slot_changes(plan.cluster, plan.options.machines)}
    write_row(path, row_of(frames, policy=cell.label, number=cell.seed, facts=facts, counted=plan.counted(cell)))


def _noted(metrics: Iterable[PluginMetric], notes: CallNotes) -> tuple[PluginMetric, ...]:
    """Return the metrics with each computation recorded as a call of the metric's plugin."""

    def noted(each: PluginMetric) -> PluginMetric:
        compute = functools.partial(_compute, each, notes)
        return dataclasses.replace(each, metric=dataclasses.replace(each.metric, compute=compute))

    return tuple(map(noted, metrics))


def _compute(each: PluginMetric, notes: CallNotes, tables: Mapping[str, Any]) -> object:
    with notes.asking(each.plugin, f"metric {each.metric.name}"):
        return each.metric.compute(tables)


def write_cell(path: Path, frames: Frames, dropped: list[dict[str, object]], *, draws: bool) -> None:
    """Write the results of a cell, replacing those of an interrupted attempt."""
    shutil.rmtree(path, ignore_errors=True)
    for table, frame in frames.tables.items():
        if frame.height:
            write_parquet(frame, path / f"{table}.parquet")
    for plugin, frame in frames.records.items():
        write_parquet(frame, path / "plugins" / f"{plugin}.parquet")
    write_text(json.dumps({"dropped": dropped, "draws": draws}), path / _DONE)


def write_row(path: Path, row: dict[str, object]) -> None:
    """Write the metrics of a resample, replacing those of an interrupted attempt."""
    shutil.rmtree(path, ignore_errors=True)
    write_text(json.dumps(row), path / _DONE)


def gather_resamples(folder: Path, cells: list[Cell], order: Sequence[str]) -> None:
    """Move the metrics of finished resamples into ``resamples.parquet`` of the result folder.

    Args:
        folder: folder of the results.
        cells: the finished cells of resamples.
        order: the policies, in the order of the file.
    """
    ResampleFile(folder).add((read_row(cell_path(folder, cell) / _DONE) for cell in cells), order)
    for cell in cells:
        shutil.rmtree(cell_path(folder, cell), ignore_errors=True)


def dropped_of(folder: Path, cell: Cell) -> list[dict[str, object]]:
    """Return a row for each job that could not run in a cell, as in ``dropped.csv``."""
    found: list[dict[str, object]] = _done_facts(folder, cell)["dropped"]
    return found


def draws_nothing(folder: Path, cell: Cell) -> bool:
    """Return whether a finished cell drew no random numbers, so that other seeds would give the same run."""
    return _done_facts(folder, cell)["draws"] is False


def _done_facts(folder: Path, cell: Cell) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cell_path(folder, cell) / _DONE).read_text(encoding="utf-8"))
    return found


def assemble(folder: Path, cells: list[Cell], *, csv: bool, keep: bool) -> None:
    """Merge the tables of finished cells into the result folder, ordered by policy and seed.

    Args:
        folder: folder of the results.
        cells: the finished cells.
        csv: whether CSV is written in addition to Parquet.
        keep: whether the cells' own files are kept, for a run that may be resumed.
    """
    paths = [cell_path(folder, cell) for cell in sorted(cells, key=lambda cell: (cell.label, cell.seed))]
    names = sorted({str(file.relative_to(path)) for path in paths for file in path.rglob("*.parquet")})
    for name in names:
        parts = [path / name for path in paths if (path / name).is_file()]
        if len(parts) == 1 and not keep:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            parts[0].replace(folder / name)
        else:
            write_parquet(pl.concat([pl.read_parquet(part) for part in parts], how="diagonal_relaxed"), folder / name)
        if csv:
            write_csv(pl.read_parquet(folder / name), (folder / name).with_suffix(".csv"))
    if not keep:
        shutil.rmtree(folder / CELLS, ignore_errors=True)
