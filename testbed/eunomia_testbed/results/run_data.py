"""Reads a result folder: every table as a polars frame, which is empty if the run did not write the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import polars as pl

from eunomia.errors import InputError
from eunomia.model.shapes import builds
from eunomia_testbed.evidence.evidence import RESAMPLES
from eunomia_testbed.results.added import NO_COLUMNS, Added, read_added
from eunomia_testbed.results.facts import RunFacts
from eunomia_testbed.results.tables import KEY, TABLES, keyed, schema_of

_LARGE: Final = 1024**2
"""File size in bytes from which reading the key columns first saves time."""


@builds
class RunData:
    """A finished or interrupted run: facts, tables (see ``tables`` for columns), and the plugins' own records."""

    name: str
    facts: RunFacts | None
    jobs: pl.DataFrame
    apps: pl.DataFrame
    users: pl.DataFrame
    rounds: pl.DataFrame
    leases: pl.DataFrame
    waits: pl.DataFrame
    gpu_types: pl.DataFrame
    queue: pl.DataFrame
    rho: pl.DataFrame
    searches: pl.DataFrame
    metrics: pl.DataFrame
    trials: pl.DataFrame
    rungs: pl.DataFrame
    segments: pl.DataFrame
    events: pl.DataFrame
    counts: pl.DataFrame
    timings: pl.DataFrame
    records: Mapping[str, pl.DataFrame]
    resamples: pl.DataFrame = dataclasses.field(default_factory=pl.DataFrame)
    """A row for each policy and resample of the trace, with the columns of ``summary.csv``; empty: there are no
    resamples."""
    added: Added = dataclasses.field(default_factory=dict)
    """Columns that plugins added to the tables, by table and name."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the run of a result folder.

        Raises:
            InputError: there is no such folder, or a table has other columns than this version's.
        """
        if not folder.is_dir():
            raise InputError("a run must be a folder that Eunomia left", value=f'"{folder}"')
        facts = folder / "run.json"
        added = read_added(folder)
        return cls(
            name=folder.resolve().name,
            facts=RunFacts.from_json(facts.read_text(encoding="utf-8")) if facts.exists() else None,
            records={path.stem: pl.read_parquet(path) for path in sorted(folder.glob("plugins/*.parquet"))},
            resamples=pl.read_parquet(folder / RESAMPLES) if (folder / RESAMPLES).exists() else pl.DataFrame(),
            added=added,
            **{table: read_table(folder, table, added) for table in TABLES},
        )

    def table(self, name: str) -> pl.DataFrame:
        """Return a table by its name in ``TABLES``."""
        frame = getattr(self, name)
        if not isinstance(frame, pl.DataFrame):
            raise InputError("a table must be one of " + ", ".join(TABLES), value=f'"{name}"')
        return frame

    def runs(self) -> list[tuple[str, int]]:
        """Return every policy and seed that has jobs or apps, sorted."""
        keys = pl.concat([self.apps.select("policy", "seed"), self.jobs.select("policy", "seed")])
        return [(str(policy), int(seed)) for policy, seed in keys.unique().sort("policy", "seed").iter_rows()]

    def only(self, policy: str, seed: int) -> Self:
        """Return the run with only the rows of one policy and seed."""
        if self.runs() == [(policy, seed)]:
            return self
        chosen = (pl.col("policy") == policy) & (pl.col("seed") == seed)
        tables: dict[str, Any] = {name: self.table(name).filter(chosen) for name in TABLES}
        records = {name: frame.filter(chosen) for name, frame in self.records.items()}
        return dataclasses.replace(self, records=records, **tables)


def read_table(folder: Path, table: str, added: Added = NO_COLUMNS) -> pl.DataFrame:
    """Return one table of a folder; a missing table is empty, and columns of newer versions are null.

    Args:
        folder: folder of the run.
        table: name of the table.
        added: columns of plugins, by table and name.

    Raises:
        InputError: the table has unknown columns, or columns of other types.
    """
    path, schema = folder / f"{table}.parquet", schema_of(table, tuple(added.get(table, ())))
    if not path.exists():
        return schema.to_frame()
    frame = _frame(path)
    if frame.schema == schema:
        return frame
    if any(schema.get(name) != dtype for name, dtype in frame.schema.items()):
        raise InputError(
            f"table {table} must have the columns {list(schema)}", value=str(frame.columns), place=str(path)
        )
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in frame.columns]
    return frame.with_columns(missing).select(schema.names())


def _frame(path: Path) -> pl.DataFrame:
    """Return the table of a file; for a large file of a single run, the key is stored once, not in each row."""
    names = pl.read_parquet_schema(path).keys() if path.stat().st_size >= _LARGE else ()
    if names and KEY.keys() <= names:
        keys = pl.read_parquet(path, columns=list(KEY))
        if keys.select(pl.all().n_unique()).row(0) == (1, 1):
            policy, seed = keys.row(0)
            del keys
            return keyed(
                pl.read_parquet(path, columns=[name for name in names if name not in KEY]), policy=policy, seed=seed
            )
    return pl.read_parquet(path)
