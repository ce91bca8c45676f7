"""Aggregates metrics over seeds or resamples: one row for each policy, with 95 % intervals."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from eunomia_testbed.evidence.evidence import Evidence

COMPARED: Final = (
    "makespan_seconds", "jct_mean_seconds", "jct_median_seconds", "jct_p95_seconds", "jct_p99_seconds", "rho_worst",
    "rho_mean", "rho_unfair_share", "rho_jain", "utilization", "slots_in_use_share", "slot_seconds",
    "placement_score_mean", "queue_length_mean", "cluster_efficiency_mean", "blocking_index_mean",
    "lease_extension_share", "restarts", "migrations", "resizes", "probes", "wait_seconds",
)  # fmt: skip
"""The metrics that compare policies."""


def over_seeds(metrics: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Return a row for each policy: ``seeds``, and for each metric its value, ``..._low`` and ``..._high``.

    The interval's bounds ``..._low`` and ``..._high`` are null if there is no interval.

    Args:
        metrics: a row for each policy and seed, as in ``summary.csv``.
        evidence: the policies' figures with their 95 % intervals.
    """
    rows: list[dict[str, object]] = []
    for policy in metrics["policy"].unique(maintain_order=True):
        mine = metrics.filter(pl.col("policy") == policy)
        row: dict[str, object] = {"policy": policy, "seeds": mine.height}
        for name in COMPARED:
            found = evidence.figure(policy, name)
            row[name] = None if found is None else found.value
            row[f"{name}_low"] = None if found is None else found.low
            row[f"{name}_high"] = None if found is None else found.high
        rows.append(row)
    floats = {f"{name}{end}": pl.Float64() for name in COMPARED for end in ("", "_low", "_high")}
    return pl.DataFrame(rows, schema={"policy": pl.String(), "seeds": pl.Int64(), **floats})


def known(values: Sequence[float | None]) -> list[float]:
    """Return the values that are not None."""
    return [float(each) for each in values if each is not None]
