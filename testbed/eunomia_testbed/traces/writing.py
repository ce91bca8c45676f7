"""Writes a workload as a trace in Eunomia's format, CSV or Parquet depending on the file's suffix."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from eunomia.errors import InputError
from eunomia.words import shown
from eunomia_appmaster.csv_cells import frame_csv
from eunomia_testbed.workload import Regime, Workload


def write_trace(workload: Workload, path: str | Path) -> None:
    """Write a workload as a trace; ``read_trace`` reads it back unchanged, except for the list of dropped rows.

    Args:
        workload: the workload.
        path: path of a new file, ``.csv`` or ``.parquet``.

    Raises:
        InputError: the suffix is another one, or the file exists or cannot be written.
    """
    import polars as pl

    target = Path(path)
    if target.suffix not in (".csv", ".parquet"):
        raise InputError("a trace must be written as .csv or .parquet", value=shown(str(path)))
    frame = pl.DataFrame(_columns(workload), nan_to_null=True)
    try:
        with target.open("xb") as stream:
            if target.suffix == ".csv":
                stream.write(frame_csv(frame).encode())
            else:
                frame.write_parquet(stream)
    except FileExistsError as error:
        raise InputError("a trace must be written to a new file", value=shown(str(path))) from error
    except OSError as error:
        raise InputError("a trace must be writable", value=error.strerror or str(error), place=str(path)) from error


def _columns(workload: Workload) -> Mapping[str, object]:
    jobs, apps, users = workload.jobs, workload.apps, workload.users
    owner = apps.user[jobs.app]
    columns: dict[str, object] = {
        "job": list(jobs.id),
        "user": [users.id[row] for row in owner.tolist()],
        "arrival_seconds": jobs.arrival_seconds,
        "least_gpus": jobs.least,
        "most_gpus": jobs.most,
        "iterations": jobs.iterations,
        "seconds_per_iteration": jobs.seconds_per_iteration,
        "model": [workload.models[kind] if kind >= 0 else None for kind in jobs.model.tolist()],
        "app_weight": apps.weight[jobs.app],
        "user_weight": users.weight[owner],
        "app_arrival_seconds": apps.arrival_seconds[jobs.app],
    }
    for field in dataclasses.fields(jobs):
        column = getattr(jobs, field.name)
        if field.default is None and column is not None and field.name != "measured_on":
            columns[field.name] = column if isinstance(column, np.ndarray) else list(column)
    if workload.reference_type is not None or jobs.measured_on is not None:
        own = jobs.measured_on or [None] * workload.size
        columns["reference_type"] = [name or workload.reference_type for name in own]
    if workload.exclusive_seconds is not None:
        columns["exclusive_seconds"] = workload.exclusive_seconds
    if workload.regimes:
        columns["regimes"] = [_life(workload.regimes.get(row, ())) for row in range(workload.size)]
    if workload.searches:
        columns["search"] = _searches(workload)
    return columns


def _life(regimes: tuple[Regime, ...]) -> str | None:
    if not regimes:
        return None
    return json.dumps(
        [
            [
                part.iterations,
                part.batch_size,
                None if math.isnan(part.seconds_per_iteration) else part.seconds_per_iteration,
            ]
            for part in regimes
        ]
    )


def _searches(workload: Workload) -> list[str | None]:
    """Return the searches of apps as JSON texts, each in the row of its app's first job."""
    first = dict(zip(*(column.tolist() for column in np.unique(workload.jobs.app, return_index=True)), strict=True))
    texts: list[str | None] = [None] * workload.size
    for app, search in workload.searches.items():
        texts[first[app]] = json.dumps(dataclasses.asdict(search))
    return texts
