"""Draws the use of machines over time, for clusters with more slots than a Gantt chart has rows."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import polars as pl

from eunomia.errors import InputError, InputErrors
from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals
from eunomia_testbed.report.groups import OTHERS, Groups
from eunomia_testbed.report.part import Json
from eunomia_testbed.report.sums import numbers
from eunomia_testbed.report.view import View
from eunomia_testbed.results.slots import slots_of
from eunomia_testbed.spec.cluster_file import parse_cluster

COLUMNS: Final = 200
MOST_ROWS: Final = 64
HELD: Final = ("app", "job", "machine", "start_seconds", "end_seconds")
"""Columns of a lease that the chart uses."""
MOST_STRIPES: Final = 3000
"""Largest number of leases on a page that can highlight a chosen app; with more, no app can be highlighted."""


_TINY: Final = 1e-9


@builds
class Machines:
    """The machines in the order of the chart, with the slots of each."""

    names: list[str]
    slots: Ints

    @property
    def row_of(self) -> Ints:
        """Return the row of each machine; adjacent machines share a row if there are more machines than rows."""
        each = -(-len(self.names) // MOST_ROWS)
        return np.arange(len(self.names)) // each


def heat_map(view: View, until: float, groups: Groups) -> Json:
    """Return for each row of machines the slots in use by time bucket: a digit 0 to 9 (ninths), or ``A`` for all.

    For each grouping of jobs, there is also a letter for each row and bucket: the group that held most slots in it.
    """
    leases = _ended_by(view.run.leases.select(HELD), until)
    machines = _machines(view)
    at = leases["machine"].cast(pl.Enum(machines.names)).to_physical().to_numpy()
    row_of = machines.row_of
    rows = int(row_of[-1]) + 1
    used = used_by_bucket(row_of[at], numbers(leases["start_seconds"]), numbers(leases["end_seconds"]), rows, until)
    slots = np.bincount(row_of, machines.slots, rows)
    texts = levels_of(used / slots[:, None])
    return {
        "rows": [
            {"name": name, "slots": int(size), "levels": text, "used": round(float(mean), 4)}
            for name, size, text, mean in zip(
                _row_names(machines), slots, texts, used.mean(axis=1) / slots, strict=True
            )
        ],
        "until": until,
        "by": _by_group(view, leases, row_of[at], rows, until, groups),
        "stripes": _stripes(leases, row_of[at], slots.astype(np.float64))
        if leases.height <= view.most(MOST_STRIPES)
        else None,
    }


def _by_group(view: View, leases: pl.DataFrame, row: Ints, rows: int, until: float, groups: Groups) -> Json:
    """Return for each grouping the letter of the group that held most slots in each row and bucket."""
    starts, ends = numbers(leases["start_seconds"]), numbers(leases["end_seconds"])
    made: dict[str, list[str]] = {}
    for way, found in groups.of(view.run.jobs, leases["job"]).items():
        group, many = np.array(found, np.int64), len(groups.names[way]) + 1
        group[group == OTHERS] = many - 1
        used = used_by_bucket(group * rows + row, starts, ends, many * rows, until)
        made[way] = _letters(used.reshape(many, rows, COLUMNS))
    return made


def _letters(used: Reals) -> list[str]:
    """Return a text for each row, with a letter per bucket: the group that used most, z for others, a dot for none.

    Args:
        used: [group, row, bucket] mean number of slots in use; the last group is that of others.
    """
    letters = np.array([*(chr(ord("a") + place) for place in range(len(used) - 1)), "z"])
    most = np.where(used.max(axis=0) > _TINY, letters[used.argmax(axis=0)], ".")
    return ["".join(row) for row in most]


def levels_of(shares: Reals) -> list[str]:
    """Return a string for each row of ``shares`` [row, bucket]: 0 to 9 for ninths, rounded up, and ``A`` for full."""
    level = np.ceil(np.clip(shares, 0.0, 1.0) * 9 - 1e-9).astype(np.int64)
    level = np.where(shares > 1 - 1e-6, 10, level)
    return ["".join(row) for row in np.array(list("0123456789A"))[level]]


def used_by_bucket(rows: Ints, starts: Reals, ends: Reals, height: int, until: float, columns: int = COLUMNS) -> Reals:
    """Return the mean number of slots in use, [row, bucket]; the row, start and end (seconds) of a hold are (n)."""
    width = until / columns
    level = np.zeros(height * (columns + 1))
    for moments, sign in ((starts, 1.0), (ends, -1.0)):
        bucket = np.clip((moments / width).astype(np.int64), 0, columns - 1)
        rest = np.clip(bucket + 1 - moments / width, 0.0, 1.0)  # of this bucket; later ones count fully
        cell = rows * (columns + 1) + bucket
        level += sign * np.bincount(cell, rest, len(level))
        level += sign * np.bincount(cell + 1, 1.0 - rest, len(level))
    used: Reals = np.cumsum(level.reshape(height, columns + 1), axis=1)[:, :columns]
    return used


def _machines(view: View) -> Machines:
    """Return the machines of the cluster's description, or otherwise those that were ever leased."""
    facts = view.run.facts
    seen = slots_of(view.run.leases).group_by("machine").agg((pl.col("slot").max() + 1).alias("slots"))
    known = {str(name): int(slots) for name, slots in seen.iter_rows()}
    if facts is not None and facts.cluster:
        try:
            described = parse_cluster(facts.cluster, place="cluster.toml").cluster.machines
            if known.keys() <= {machine.name for machine in described}:
                known = {machine.name: machine.gpus for machine in described}
        except (InputError, InputErrors):
            pass
    names = sorted(known, key=_natural)
    return Machines(names=names, slots=np.array([known[name] for name in names], dtype=np.int64))


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key for names: ``m2`` before ``m10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _row_names(machines: Machines) -> list[str]:
    """Return the names of rows: a machine's name, or the first and last name of the machines in a row."""
    row_of = machines.row_of
    firsts = np.flatnonzero(np.append(True, row_of[1:] != row_of[:-1]))
    lasts = np.append(firsts[1:] - 1, len(row_of) - 1)
    return [
        machines.names[first] if first == last else f"{machines.names[first]} to {machines.names[last]}"
        for first, last in zip(firsts, lasts, strict=True)
    ]


def _ended_by(leases: pl.DataFrame, until: float) -> pl.DataFrame:
    """Return the leases; the end of an open one becomes ``until``, in seconds."""
    return leases.with_columns(pl.col("end_seconds").fill_null(until))


def _stripes(leases: pl.DataFrame, rows: Ints, slots: Reals) -> Json:
    """Return row, start, end, app and fraction of the row's slots, for each set of leases that share the first four."""
    named = leases.select(
        pl.Series("row", rows), pl.col("start_seconds").round(2), pl.col("end_seconds").round(2), "app"
    )
    counted = named.group_by(named.columns, maintain_order=True).len()
    return [
        [row, start, end, app, round(count / slots[row], 3)]
        for row, start, end, app, count in counted.sort(named.columns).iter_rows()
    ]
