"""Groups jobs by user, model and length; a page colours jobs by group if there are more apps than colours."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from eunomia.model.shapes import builds
from eunomia_testbed.report.sums import sums_by
from eunomia_testbed.results.run_data import RunData

MOST_GROUPS: Final = 18
"""Largest number of groups with a colour of their own, as many as for apps; the others are grey."""
OTHERS: Final = -1
LENGTHS: Final = ((10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3_600.0, "1 h"), (21_600.0, "6 h"),
                  (86_400.0, "1 d"), (604_800.0, "7 d"))  # fmt: skip
"""Upper bounds of the length classes, in seconds and as text."""


@builds
class Groups:
    """The groups of all runs on the page, so that a colour has the same meaning under every policy.

    Attributes:
        names: for each grouping (user, model, length), the names of groups with a colour, in order of colours: users
            and models by GPU time over all runs, lengths from the shortest; a grouping with fewer than two groups is
            left out.
        others: for each grouping, the number of groups without a colour.
    """

    names: Mapping[str, Sequence[str]]
    others: Mapping[str, int]

    def of(self, jobs: pl.DataFrame, names: pl.Series) -> dict[str, list[int]]:
        """Return for each grouping the group of each named job; -1: a group without a colour, or unknown.

        Args:
            jobs: the table ``jobs`` of one run.
            names: names of jobs, in any order.
        """
        known = with_length(jobs).unique("job", keep="first", maintain_order=True)
        found = pl.DataFrame({"job": names}).join(known, on="job", how="left", maintain_order="left")
        return {way: _places(found[way], named).to_list() for way, named in self.names.items()}

    def to_plain(self) -> dict[str, object]:
        """Return the groups as JSON values."""
        return {way: {"names": list(named), "others": self.others[way]} for way, named in self.names.items()}


def groups_of(run: RunData) -> Groups:
    """Return the groups of the jobs under all policies and seeds."""
    jobs = with_length(run.jobs)
    names: dict[str, Sequence[str]] = {}
    others: dict[str, int] = {}
    for way in ("user", "model", "length"):
        held = sums_by(jobs.filter(pl.col(way).is_not_null()), [way], "slot_seconds")
        ordered = held.sort("slot_seconds", way, descending=[True, False])[way].to_list()
        if way == "length":
            ordered = [label for label in _labels() if label in set(ordered)]
        if len(ordered) > 1:
            names[way], others[way] = ordered[:MOST_GROUPS], max(len(ordered) - MOST_GROUPS, 0)
    return Groups(names=names, others=others)


def with_length(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the columns by which jobs are grouped; ``length`` is the class of a job's time alone on the cluster.

    If that time is unknown, it is the class of the time that the job ran.
    """
    known = jobs.select(
        pl.coalesce(pl.col("ideal_seconds", "exclusive_seconds", "run_seconds").fill_nan(None)).alias("alone")
    )["alone"]
    place = np.searchsorted([bound for bound, _ in LENGTHS], known.fill_null(0.0).to_numpy(), side="right")
    length = pl.Series("length", _labels()).gather(place).set(known.is_null(), None)
    return jobs.select("job", "user", "model", "slot_seconds", length)


def _labels() -> list[str]:
    """Return the names of the length classes, shortest first."""
    words = [word for _, word in LENGTHS]
    between = [f"{low} to {high}" for low, high in itertools.pairwise(words)]
    return [f"under {words[0]}", *between, f"{words[-1]} and more"]


def _places(groups: pl.Series, named: Sequence[str]) -> pl.Series:
    places = pl.DataFrame(
        {"name": list(named), "place": range(len(named))}, schema={"name": pl.String, "place": pl.Int64}
    )
    found = groups.to_frame("name").join(places, on="name", how="left", maintain_order="left")["place"]
    return found.fill_null(OTHERS)
