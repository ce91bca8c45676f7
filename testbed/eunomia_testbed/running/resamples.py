"""Resamples of a plan's trace: their draws, the row of metrics of each one, and the file of all rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from eunomia.model.shapes import value
from eunomia.units import Reals
from eunomia_testbed.evidence.draws import DrawKind, Draws
from eunomia_testbed.evidence.evidence import RESAMPLES
from eunomia_testbed.evidence.intervals import FEWEST_RESAMPLES
from eunomia_testbed.evidence.resampling import Blocks, automatic_blocks, check_blocks, draw, gaps_of
from eunomia_testbed.simulator import Keep
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.taking import taken

if TYPE_CHECKING:
    import polars as pl

    from eunomia_testbed.metrics.frames import Frames

KEPT: Final = Keep(rounds=False, leases=True, waits=True, segments=False, queue=True, records=False, timings=False)
"""The logs that a resample's simulation may keep: those needed for the metrics that compare policies."""


@value
class Resampling:
    """The resamples of a plan's trace, drawn in blocks of consecutive apps.

    Attributes:
        count: number of resamples, numbered from 1.
        blocks: the length of the blocks that are drawn.
        seed: the seed of the draws. A resample depends only on seed and number, so that more can be added.
        source: the name of the trace.
    """

    count: int
    blocks: Blocks
    seed: int
    source: str

    def workload(self, trace: Workload, number: int) -> Workload:
        """Return the resample of the trace with a number from 1."""
        rows, arrivals = draw(np.random.default_rng([self.seed, number]), trace.apps.arrival_seconds, self.blocks)
        return taken(trace, rows, arrivals)

    @property
    def fewest(self) -> int:
        """Return the least number of resamples that gives intervals."""
        return FEWEST_RESAMPLES

    @property
    def identity(self) -> str:
        """Return, as text, all parameters that determine the resamples, apart from the trace and their number."""
        return repr((self.blocks, self.seed))

    def counted(self, trace: Workload, number: int) -> None:
        """Return None, since all apps of a resample count in its metrics."""

    def draws(self, done: int) -> Draws:
        """Return the draws of a run in which every policy has finished this number of resamples."""
        by_time = self.blocks.seconds is not None
        return Draws(
            kind=DrawKind.RESAMPLES,
            count=done,
            source=self.source,
            block_apps=None if by_time else self.blocks.apps,
            block_seconds=self.blocks.seconds,
            seed=self.seed,
        )


def resampling_of(trace: Workload, count: int, *, seed: int, block: Blocks | None) -> Resampling:
    """Return the resampling of a trace; with ``block`` None, the block length is automatic.

    Raises:
        InputError: the trace is too short to be resampled, or too short for the blocks.
    """
    arrivals = trace.apps.arrival_seconds
    check_blocks(Blocks(apps=1) if block is None else block, arrivals)
    blocks = automatic_blocks(gaps_of(arrivals), _work(trace)) if block is None else block
    return Resampling(count=count, blocks=blocks, seed=seed, source=trace.name)


def _work(trace: Workload) -> Reals:
    """Return each app's GPU-seconds by the trace's times; for a job without times, an iteration counts as a second."""
    jobs = trace.jobs
    seconds = np.where(np.isfinite(jobs.seconds_per_iteration), jobs.seconds_per_iteration, 1.0)
    work = np.zeros(len(trace.apps.id))
    np.add.at(work, jobs.app, jobs.iterations * seconds * jobs.most)
    return work


# -- rows


def row_of(
    frames: Frames, *, policy: str, number: int, facts: dict[str, Any], counted: frozenset[str] | None = None
) -> dict[str, object]:
    """Return the row of ``resamples.parquet`` for one simulation.

    Args:
        frames: tables of the simulation.
        policy: label of the policy.
        number: number of the resample or window.
        facts: fields of ``RunFacts`` on which metrics depend.
        counted: for a window, the ids of the apps that count; None: all.
    """
    from eunomia_testbed.results.facts import RunFacts
    from eunomia_testbed.results.run_data import RunData
    from eunomia_testbed.results.summary import summary_of
    from eunomia_testbed.results.tables import TABLES, schema_of
    from eunomia_testbed.running.windows import NOT_OF_A_PART, only_counted

    tables: dict[str, Any] = {
        name: _only_declared(frames.tables[name], name) if name in frames.tables else schema_of(name).to_frame()
        for name in TABLES
    }
    if counted is not None:
        tables = only_counted(tables, counted)
    own = RunFacts(kind="simulate", command=(), seeds=(number,), clock="virtual", **facts)
    run = RunData(name="resample", facts=own, records={}, **tables)
    row = summary_of(run, policy, number).flat()
    return row if counted is None else row | dict.fromkeys(NOT_OF_A_PART)


def _only_declared(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Return a table without the columns that plugins have added."""
    from eunomia_testbed.results.tables import schema_of

    return frame.select(schema_of(table).names())


class ResampleFile:
    """The file ``resamples.parquet`` of a result folder, with a row for each policy and resample number."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESAMPLES

    @cached_property
    def done(self) -> Collection[tuple[str, int]]:
        """Return the policy label and resample number of each row in the file."""
        import polars as pl

        if not self._path.is_file():
            return frozenset()
        keys = pl.read_parquet(self._path, columns=["policy", "seed"])
        return frozenset((str(policy), int(number)) for policy, number in keys.iter_rows())

    def add(self, rows: Iterable[dict[str, object]], order: Sequence[str]) -> None:
        """Add rows to the file, ordered by policy and number; rows with the same key are replaced."""
        import polars as pl

        from eunomia_testbed.results.writing import write_parquet

        made = list(rows)
        if not made:
            return
        new = pl.DataFrame(made, infer_schema_length=None)
        if self._path.is_file():
            old = pl.read_parquet(self._path).join(new.select("policy", "seed"), on=["policy", "seed"], how="anti")
            new = pl.concat([old, new], how="diagonal_relaxed")
        at = {policy: place for place, policy in enumerate(order)}
        place = pl.col("policy").replace_strict(at, default=len(at), return_dtype=pl.Int64)
        write_parquet(new.sort(place, "seed"), self._path)

    def rows(self, most: int) -> pl.DataFrame:
        """Return the rows of the resamples with numbers up to ``most``."""
        import polars as pl

        return pl.read_parquet(self._path).filter(pl.col("seed") <= most)

    def complete(self, without: Collection[str] = ()) -> int:
        """Return the number of resamples that have finished under every policy that has any resamples.

        Args:
            without: policies to ignore, which were dropped from resampling.
        """
        import polars as pl

        if not self._path.is_file():
            return 0
        keys = pl.read_parquet(self._path, columns=["policy", "seed"]).filter(~pl.col("policy").is_in(list(without)))
        counts = keys.group_by("seed").len()
        return int((counts["len"] == keys["policy"].n_unique()).sum())


def read_row(path: Path) -> dict[str, object]:
    """Return the row that a resample's simulation has written."""
    found: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return found


def smaller(keep: Keep) -> Keep:
    """Return the logs that a resample's simulation keeps: those in both the plan's and ``KEPT``."""
    return Keep(
        **{field.name: getattr(keep, field.name) and getattr(KEPT, field.name) for field in dataclasses.fields(Keep)}
    )
