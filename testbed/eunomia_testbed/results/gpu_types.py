"""Computes mean speeds, and finds apps that are slow because of their GPU types, from the table ``gpu_types``."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from eunomia.errors import InputError, InputErrors
from eunomia.model.shapes import maker, value
from eunomia.units import Reals
from eunomia_testbed.results.dots import dot
from eunomia_testbed.results.facts import RunFacts
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.slots import numbered
from eunomia_testbed.spec.cluster_file import parse_cluster

SLOW_PART: Final = 0.1
"""Fraction of its run time that an app must lose to slower GPU types to count as slow because of them."""


@value
class AppOnTypes:
    """An app with its times and speeds by GPU type.

    Attributes:
        app: name of the app.
        run_seconds: total run time of the app's jobs.
        wait_seconds: total waiting time of the app's jobs.
        lost_seconds: the part of the run time that would be saved on the reference type.
        gpu_type: the GPU type on which the app lost most.
        speed: mean speed of the app's jobs on that type, relative to the reference type.
        reference_type: the GPU type of the app's times; if there are several, the first by name.
        speed_mean: mean speed over all GPU time of the app, relative to the reference type.
    """

    app: str
    run_seconds: float
    wait_seconds: float
    lost_seconds: float
    gpu_type: str
    speed: float
    reference_type: str
    speed_mean: float

    @property
    def why(self) -> str:
        """Return the app's largest loss as text, such as ``on K80 at 0.25 times the speed of V100``."""
        return f"on {self.gpu_type} at {self.speed:.2f} times the speed of {self.reference_type}"

    @property
    def slow(self) -> bool:
        """Return whether slower types cost at least a tenth of the app's run time, and more than its waiting time."""
        return self.lost_seconds >= SLOW_PART * self.run_seconds and self.lost_seconds > self.wait_seconds


_new_app_on_types = maker(AppOnTypes)


@functools.lru_cache(maxsize=2)
def apps_by_type(run: RunData) -> Sequence[AppOnTypes] | None:
    """Return the apps with known speeds, sorted by name; None: no speed is known."""
    known = run.gpu_types.filter(pl.col("speed").is_not_null() & pl.col("run_seconds").is_not_null())
    if known.is_empty():
        return None
    app, names = numbered(known["app"])
    kind, types = numbered(known["gpu_type"])
    size = names.len()
    held, ran, lost, speed = (
        known[name].to_numpy() for name in ("slot_seconds", "run_seconds", "lost_seconds", "speed")
    )
    of_type = np.zeros((3, size, types.len()))
    for table, values in zip(of_type, (lost, held, held * speed), strict=True):
        np.add.at(table, (app, kind), values)
    most = np.argmax(of_type[0], axis=1)
    rows = np.arange(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        there = (of_type[2] / of_type[1])[rows, most]
        mean = of_type[2].sum(axis=1) / of_type[1].sum(axis=1)
    references = known.group_by("app").agg(pl.col("reference_type").min()).sort("app")["reference_type"]
    seconds = (np.bincount(app, ran, size), _waited(run, names), of_type[0].sum(axis=1))
    of = types.gather(most)
    columns = (
        names.to_list(),
        of.to_list(),
        references.to_list(),
        *(each.tolist() for each in (*seconds, there, mean)),
    )
    return [
        _new_app_on_types(
            app=name,
            run_seconds=ran_for,
            wait_seconds=waited,
            lost_seconds=gone,
            gpu_type=kind,
            speed=on_it,
            reference_type=reference or "",
            speed_mean=on_all,
        )
        for name, kind, reference, ran_for, waited, gone, on_it, on_all in zip(*columns, strict=True)
    ]


def mean_speed(rows: pl.DataFrame) -> float | None:
    """Return the mean speed of rows of ``gpu_types``, weighted by GPU time; None: no speed is known."""
    known = rows.filter(pl.col("speed").is_not_null() & (pl.col("slot_seconds") > 0.0))
    if known.is_empty():
        return None
    held = known["slot_seconds"].to_numpy()
    return dot(held, known["speed"].to_numpy()) / float(held.sum())


def gpus_by_type(facts: RunFacts | None) -> Mapping[str, int]:
    """Return the number of GPUs by type, in the order of the cluster's description; empty: unknown."""
    if facts is None or not facts.cluster:
        return {}
    try:
        cluster = parse_cluster(facts.cluster, place="cluster.toml").cluster
    except (InputError, InputErrors):
        return {}
    return dict(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))


def _waited(run: RunData, apps: pl.Series) -> Reals:
    """Return the total seconds that the jobs of each app waited; unknown waits count as 0."""
    jobs = run.jobs.filter(pl.col("app").is_in(apps.implode())).select("app", "wait_seconds")
    row = jobs["app"].cast(pl.Enum(apps)).to_physical().to_numpy()
    waited: Reals = np.bincount(row, jobs["wait_seconds"].fill_null(0.0).fill_nan(0.0).to_numpy(), apps.len()).astype(
        float
    )
    return waited
