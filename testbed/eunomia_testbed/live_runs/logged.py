"""Reads the event files of jobs: logged values, and steps that were executed twice.

As root, an app's files are read with the rights of the folder's owner, so that links cannot reach other files.
"""

import dataclasses
import itertools
import json
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eunomia_appmaster.app.trials_file import read_trials_file
from eunomia_appmaster.node.file_rights import reading_as_owner
from eunomia_appmaster.profiler import LogFolder


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Two successive incarnations of a job: the first ended at step ``reached``, the next began after ``resumed``."""

    incarnation: int
    reached: int
    resumed: int

    @property
    def twice(self) -> int:
        """Return the number of steps that were executed twice."""
        return max(0, self.reached - self.resumed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AppSearch:
    """The search of an app file; without a search, ``metric`` is empty and ``max_iterations`` None."""

    metric: str
    mode: str
    max_iterations: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A row of an app's ``trials.csv``; ``parameters`` is a JSON object."""

    job: str
    parameters: str
    state: str
    rung: int | None
    iterations: int
    best: float | None
    lost: int
    why: str = ""
    """The last error of a failed trial."""


def read_logs(run_dir: Path) -> LogFolder:
    """Return a job's event files, read to their end."""
    logs = LogFolder(run_dir / "logs")
    reading_as_owner(run_dir.parent, logs.poll)
    return logs


def tag_of_steps(logs: LogFolder) -> str | None:
    """Return the tag with the most points if it is logged at each iteration; None: there is no such tag."""
    sizes = {tag: logs.series(tag).step for tag in logs.tags()}
    if not sizes:
        return None
    tag = max(sizes, key=lambda each: len(sizes[each]))
    apart = np.diff(sizes[tag])
    return tag if len(apart) and np.median(apart) == 1 else None


def overlaps(logs: LogFolder, tag: str) -> list[Overlap]:
    """Return the overlap of each incarnation's steps, under a per-iteration tag, with those of the previous one."""
    found: list[Overlap] = []
    reached: int | None = None
    for writer in logs.writers():
        steps = logs.as_written(tag, writer=writer).step
        if not len(steps):
            continue
        if reached is not None:
            found.append(Overlap(incarnation=writer, reached=reached, resumed=int(steps.min()) - 1))
        reached = int(steps.max())
    return found


def first_steps(logs: LogFolder, tag: str) -> Iterator[tuple[int, int, float]]:
    """Yield each incarnation, its first logged step under a per-iteration tag, and that step's Unix time."""
    for writer in logs.writers():
        series = logs.as_written(tag, writer=writer)
        if len(series):
            first = int(np.argmin(series.step))
            yield writer, int(series.step[first]), float(series.wall_time[first])


def read_trials(app_dir: Path) -> list[Trial]:
    """Return the trials in an app's ``trials.csv``; empty: there is no such file."""
    rows = reading_as_owner(app_dir, lambda: read_trials_file(app_dir))
    return [_trial(row) for row in rows]


def _trial(row: dict[str, str]) -> Trial:
    return Trial(
        job=row["job"],
        parameters=json.dumps(json.loads(row["parameters"] or "{}")),
        state=row["state"],
        rung=int(row["rung"]) if row["rung"] else None,
        iterations=int(row["iterations"] or 0),
        best=finite(row["best"]),
        lost=int(row["iterations_lost"] or 0),
        why=row.get("why") or "",
    )


def finite(text: str) -> float | None:
    """Return a text as a finite number; None: the text is empty or not finite."""
    number = float(text) if text else math.nan
    return number if math.isfinite(number) else None


def _app_file(app_dir: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(
            reading_as_owner(app_dir, lambda: (app_dir / "app.toml").read_text(encoding="utf-8")),
        )
    except (OSError, ValueError):  # ValueError: not TOML, or not UTF-8
        return {}


def model_of(app_dir: Path) -> str | None:
    """Return the name of an app's script without suffix, or the last part of its module's name; None: neither."""
    words = str(_app_file(app_dir).get("job", {}).get("command", "")).split()
    modules = (module.rpartition(".")[2] for option, module in itertools.pairwise(words) if option == "-m")
    return next((Path(word).stem for word in words if word.endswith(".py")), None) or next(modules, None)


def search_of(app_dir: Path) -> AppSearch:
    """Return the metric that an app's tuner compares, its mode, and the iterations of a complete trial."""
    plain = _app_file(app_dir)
    tuner, most = plain.get("tuner", {}), plain.get("job", {}).get("max_iterations")
    return AppSearch(
        metric=str(tuner.get("metric", "")),
        mode=str(tuner.get("mode", "max")),
        max_iterations=most if isinstance(most, int) and most > 0 else None,
    )


def words_of_failure(app: str, app_dir: Path) -> str:
    """Return an app's name, followed by the last error of its trials if there is any."""
    errors = [trial.why for trial in read_trials(app_dir) if trial.why]
    return f"{app}: {errors[-1]}" if errors else app
