"""Computes how long jobs and apps waited by reason, and the main reason."""

from __future__ import annotations

from collections.abc import Sequence, Set

import polars as pl

from eunomia.model.shapes import value
from eunomia_testbed.report.sums import sums_by
from eunomia_testbed.report.words import reason_in_words
from eunomia_testbed.results.run_data import RunData

OWN_CHOICE = "paused_by_app"
"""The reason of the tuner's own pauses, which do not count as waiting, since the job requested no slots."""


@value
class Waiting:
    """The total wait of an app in job-seconds, and its main reason, with the plugin that gave the reason."""

    seconds: float
    reason: str
    reason_seconds: float
    plugin: str | None
    alone: bool = False
    """Whether no other app was in the cluster, so that the job waited only for the app's own trials."""

    @property
    def words(self) -> str:
        """Return the reason in words, such as ``it was outbid: others gained more from the slots``."""
        return reason_in_words(self.reason, alone=self.alone)


def waits_with_apps(run: RunData) -> pl.DataFrame:
    """Return ended waits except the apps' own pauses, each with ``seconds``, ``app`` and ``user``.

    A job without a table row belongs to the app before the last slash of its name.
    """
    ended = run.waits.filter(pl.col("end_seconds").is_not_null() & (pl.col("reason") != OWN_CHOICE))
    spans = ended.select("job", "reason", "plugin", (pl.col("end_seconds") - pl.col("start_seconds")).alias("seconds"))
    known = run.jobs.select("job", "app", "user").unique("job", keep="first", maintain_order=True)
    joined = spans.join(known, on="job", how="left", maintain_order="left")
    before = pl.col("job").str.replace(r"/[^/]*$", "")
    return joined.with_columns(pl.coalesce("app", before).alias("app"))


def waiting_by_app(
    waits: pl.DataFrame, apps: Sequence[str] | None = None, *, lone: Set[str] = frozenset()
) -> dict[str, Waiting]:
    """Return for every app that waited its total wait and its main reason for waiting.

    Args:
        waits: the result of ``waits_with_apps``.
        apps: names of apps; None: all.
        lone: apps that were alone in the cluster (``company.lone_apps``).
    """
    if apps is not None:
        waits = waits.filter(pl.col("app").is_in(list(apps)))
    by_reason = sums_by(waits, ["app", "reason", "plugin"], "seconds")
    total = dict(sums_by(by_reason, ["app"], "seconds").select("app", "seconds").iter_rows())
    longest = by_reason.sort("seconds", "reason", descending=True).unique("app", keep="first", maintain_order=True)
    return {
        app: Waiting(seconds=total[app], reason=reason, reason_seconds=seconds, plugin=plugin, alone=app in lone)
        for app, reason, plugin, seconds in longest.sort("app").select("app", "reason", "plugin", "seconds").iter_rows()
    }
