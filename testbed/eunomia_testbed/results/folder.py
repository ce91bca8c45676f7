"""Writes a result folder; every file is replaced atomically, so an interrupted run leaves readable tables."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import polars as pl

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.results.added import read_added
from eunomia_testbed.results.facts import RunFacts
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import Summary, summarise
from eunomia_testbed.results.tables import KEY, Row, frame_of, schema_of
from eunomia_testbed.results.writing import write_csv, write_parquet, write_text

_PLUGIN_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MARK = "run.json"
"""The file that marks a result folder; ``overwrite`` never empties another folder, such as a state folder."""


def new_folder_name(kind: str, now: datetime) -> str:
    """Return the name of a new folder in ``eunomia-out``, such as ``demo-20261120T141530Z``.

    A second folder within the same second gets the suffix ``-2``.
    """
    name = f"{kind}-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    names = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
    return next(each for each in names if not is_there(Path("eunomia-out") / each))


def is_there(path: Path) -> bool:
    """Return whether a result folder exists.

    Raises:
        InputError: the path cannot be accessed, for example because it is too long.
    """
    try:
        return path.exists()
    except OSError as error:
        raise _no_folder(path, error) from error


@value
class ResultFolder:
    """A result folder to which a run writes; with ``csv``, each Parquet file gets a CSV file too."""

    path: Path
    csv: bool = False

    @classmethod
    def create(cls, path: Path, *, overwrite: bool = False, csv: bool = False) -> Self:
        """Create a result folder, and point the link ``latest`` in its parent folder to the new folder.

        Raises:
            InputError: the path exists and ``overwrite`` is not set, or the path exists but is not a result folder.
            InputError: the folder cannot be created or written.
        """
        try:
            check_out(path, overwrite=overwrite)
            if path.exists() and any(path.iterdir()):
                shutil.rmtree(path)
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _no_folder(path, error) from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise InputError("--out must be a folder that can be written", value="Permission denied", place=str(path))
        _point_latest_at(path)
        return cls(path=path, csv=csv)

    def write(self, table: str, rows: Iterable[Row], *, policy: str, seed: int = 0) -> None:
        """Write the rows of one policy and seed to a table; they replace earlier rows of that policy and seed."""
        self.write_frame(table, frame_of(table, rows, policy=policy, seed=seed))

    def write_frame(self, table: str, frame: pl.DataFrame) -> None:
        """Write a frame with the table's schema; earlier rows of the frame's policies and seeds are replaced."""
        schema = schema_of(table, tuple(read_added(self.path).get(table, ())))
        if frame.schema != schema:
            raise InputError(f"table {table} must have the columns {list(schema)}", value=str(frame.columns))
        self._merge(f"{table}.parquet", frame)

    def write_record(self, plugin: str, rows: Iterable[Mapping[str, object]], *, policy: str, seed: int = 0) -> None:
        """Write a plugin's own record, with columns of the plugin's choice, such as ``round, app, rho, c``.

        The report shows any record as a table, grouped by ``round`` if it has that column, and draws ``c`` by app if it
        has both. Lists and tables within a cell are written as JSON text.
        """
        if not _PLUGIN_NAME.fullmatch(plugin):
            raise InputError("a plugin's name must match [a-z][a-z0-9_]*", value=f'"{plugin}"')
        keyed = [{"policy": policy, "seed": seed, **row} for row in rows]
        if keyed:
            names = list(dict.fromkeys(name for row in keyed for name in row))
            columns = {name: [row.get(name) for row in keyed] for name in names}
            self._merge(f"plugins/{plugin}.parquet", pl.DataFrame(columns, strict=False))

    def write_facts(self, facts: RunFacts) -> None:
        """Write ``run.json``, the resolved profiles and the cluster; called at the start and at the end of a run."""
        write_text(facts.to_json(), self.path / "run.json")
        for name, text in facts.profiles.items():
            write_text(text, self.path / "profiles" / f"{_file_name(name)}.toml")
        if facts.cluster:
            write_text(facts.cluster, self.path / "cluster.toml")

    def write_summary(
        self, run: RunData | None = None, counted: Mapping[tuple[str, int], Summary] | None = None
    ) -> pl.DataFrame:
        """Summarize the tables, write ``summary.csv``, and return it: a row for each policy and seed.

        A failed run has a row too, with the error in the column ``failure`` and without metrics.

        Args:
            run: the folder's tables, if they have been read already.
            counted: the tables' summaries by policy and seed, if they have been computed already.
        """
        tables = RunData.load(self.path) if run is None else run
        summary = summarise(tables, counted)
        write_csv(_with_failures(summary, tables.facts), self.path / "summary.csv")
        return summary

    def _merge(self, name: str, frame: pl.DataFrame) -> None:
        """Replace the rows of the frame's policies and seeds in a file; other rows stay in order."""
        target = self.path / name
        if target.exists():
            others = pl.read_parquet(target).join(frame.select(*KEY).unique(), on=list(KEY), how="anti")
            frame = pl.concat([others, frame], how="diagonal_relaxed").sort(list(KEY), maintain_order=True)
        write_parquet(frame, target)
        if self.csv:
            write_csv(frame, target.with_suffix(".csv"))


def _with_failures(summary: pl.DataFrame, facts: RunFacts | None) -> pl.DataFrame:
    """Return the summary with a row for each failed run, and a last column for the errors."""
    failed = [
        {"policy": each.policy, "seed": each.seed, "failure": each.error}
        for each in (facts.failures if facts else ())
        if not each.resampled
    ]
    rows = pl.DataFrame(failed, schema={"policy": pl.String(), "seed": pl.Int64(), "failure": pl.String()})
    counted = summary.with_columns(pl.lit(None, pl.String()).alias("failure")) if summary.height else rows.clear()
    return pl.concat([counted, rows], how="diagonal")


def _no_folder(path: Path, error: OSError) -> InputError:
    return InputError("--out must be a folder that can be made", value=error.strerror, place=str(path))


def check_out(path: Path, *, overwrite: bool) -> None:
    """Check, before long work and without changes, that a result folder can be created at a path.

    Raises:
        InputError: the path exists and ``overwrite`` is not set, or the path exists but is not a result folder.
    """
    try:
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return
    except OSError as error:
        raise _no_folder(path, error) from error
    if not path.is_dir():
        raise InputError("--out must name a folder", value=f"the file {path}")
    if not overwrite:
        rule = "--out must name a new folder, unless --overwrite is given"
        raise InputError(rule, value=f"the existing folder {path}")
    if not (path / _MARK).exists():
        raise InputError("--overwrite must name a folder that an earlier run left", value=f"{path}, without run.json")


def _point_latest_at(path: Path) -> None:
    """Point the link ``latest`` in the parent folder to ``path``, unless a file or folder has that name."""
    link = path.parent / "latest"
    if path.name == "latest" or (link.exists() and not link.is_symlink()):
        return
    part = link.with_name(f".latest.{os.getpid()}.part")
    with contextlib.suppress(OSError):  # some file systems do not support links, and nothing depends on this link
        part.unlink(missing_ok=True)
        part.symlink_to(path.name, target_is_directory=True)
        part.replace(link)


def _file_name(policy: str) -> str:
    """Return a policy's name as a safe file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", policy).lstrip(".") or "policy"
