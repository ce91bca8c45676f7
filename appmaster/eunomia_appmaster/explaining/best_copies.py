"""Copies the results of a search's best trial into a folder: checkpoint, parameters, metrics."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.csv_cells import csv_text
from eunomia_appmaster.explaining.best_jobs import BestJob, best_checkpoint
from eunomia_appmaster.profiler.log_folder import LogFolder

CHECKPOINT, PARAMETERS, METRICS = "best.pt", "parameters.toml", "metrics.csv"
_ATTEMPTS = 5


def copy_best(found: BestJob, trial: Path, target: Path, *, title: str) -> list[Path]:
    """Write ``best.pt`` (if there is a checkpoint), ``parameters.toml`` and ``metrics.csv``, each atomically.

    Args:
        found: the best trial.
        trial: folder of the trial.
        target: folder for the copies, created if it does not exist.
        title: first line of ``parameters.toml``.

    Returns:
        The files written.

    Raises:
        InputError: the trial's folder cannot be read here, the target cannot be written, or it has such files already.
    """
    if not trial.is_dir():
        raise InputError("the trial's folder must be on this machine to be copied", value="none", place=str(trial))
    names = [*([CHECKPOINT] if found.checkpoint else []), PARAMETERS, METRICS]
    there = [name for name in names if (target / name).exists()]
    if there:
        raise InputError("a folder to copy into must not have these files yet", value=", ".join(there), place="--copy")
    try:
        target.mkdir(parents=True, exist_ok=True)
        if found.checkpoint:
            _whole(target / CHECKPOINT, lambda path: _copy_checkpoint(trial, path))
        _whole(target / PARAMETERS, lambda path: _write_parameters(found, path, title))
        _whole(target / METRICS, lambda path: _write_metrics(trial / "logs", path))
    except OSError as error:
        raise InputError("a folder to copy into must be writable", value=str(error), place="--copy") from error
    return [target / name for name in names]


def _whole(path: Path, write: Callable[[Path], None]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _copy_checkpoint(trial: Path, path: Path) -> None:
    """Copy the current best checkpoint, and verify the copy, since a running trial may replace it meanwhile."""
    for _ in range(_ATTEMPTS):
        kept = best_checkpoint(trial)
        if kept is None:
            break
        try:
            shutil.copyfile(kept.path, path)
        except FileNotFoundError:
            continue
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == kept.sha256:
                return
    raise EunomiaError("a checkpoint must stay while it is copied; try again", value="another one", place=str(trial))


def _write_parameters(found: BestJob, path: Path, title: str) -> None:
    lines = [f"# {title}", *(f"{name} = {json.dumps(setting)}" for name, setting in found.params.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_metrics(logs: Path, path: Path) -> None:
    """Write every scalar that the trial logged, one row per point: tag, step, Unix seconds, value."""
    folder = LogFolder(logs)
    folder.poll()
    rows: list[Sequence[object]] = [("tag", "step", "unix_seconds", "value")]
    for tag in folder.tags():
        series = folder.series(tag)
        columns = (series.step.tolist(), series.wall_time.tolist(), series.value.tolist())
        rows += [(tag, *row) for row in zip(*columns, strict=True)]
    path.write_text(csv_text(rows), encoding="utf-8", newline="")
