"""The summary of a run: one row for each policy and seed, for ``summary.csv`` and the report's sentences.

Definitions and sources of the metrics: ``docs/reference/metrics.md``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Final

import polars as pl

from eunomia.contract.verdicts import Reason
from eunomia.model.shapes import value
from eunomia_testbed.metrics.fairness import KINDS, UNFAIR_RHO, jain
from eunomia_testbed.results import counting
from eunomia_testbed.results.assumptions import share_of
from eunomia_testbed.results.columns import col
from eunomia_testbed.results.counting import apps_or_jobs, faults_of, held_twice, rho_column, slot_count
from eunomia_testbed.results.figures import figures_of
from eunomia_testbed.results.gpu_types import apps_by_type, mean_speed
from eunomia_testbed.results.run_data import RunData

__all__ = [
    "OVERHEADS",
    "UNFAIR_RHO",
    "Summary",
    "apps_or_jobs",
    "held_twice",
    "slot_count",
    "summaries_of",
    "summarise",
    "summary_of",
]

RHO_WAYS: Final = ("worst", "p99", "p90", "mean", "above_1_share", "unfair_share")
"""Names of the statistics over apps that are computed for each kind of ρ."""
OVERHEADS: Final = ("start", "restore", "save", "idle")
"""Activities of a held GPU other than progress."""


@value
class Summary:
    """The metrics of one policy and seed; None: unknown; shares are fractions of 1.

    Fields without a declaration are figures that a column of a table declares (``columns.Figure``). ``rho_worst`` to
    ``rho_jain`` refer to the run's kind of rho, which is ``rho_kind``.
    """

    policy: str
    seed: int
    apps: Annotated[int, col("apps", "judged")]
    apps_finished: Annotated[int, col("apps", "that finished")]
    apps_left_out: Annotated[int, col("apps", "that can never run on the cluster, under any policy")]
    jobs: Annotated[int, col("jobs", "of these apps")]
    makespan_seconds: float | None
    jct_mean_seconds: float | None
    jct_median_seconds: float | None
    jct_p95_seconds: float | None
    jct_p99_seconds: float | None
    rho_kind: Annotated[str, col("", "the kind of ρ that the run is judged by")]
    rho_worst: Annotated[float | None, col("", "the largest ρ of the apps", label="worst ρ")]
    rho_worst_app: Annotated[str | None, col("", "the app with it")]
    rho_mean: Annotated[float | None, col("", "the mean ρ of the apps", label="mean ρ")]
    rho_above_1_share: Annotated[float | None, col("share", "of the apps: those with ρ above 1")]
    rho_unfair_share: Annotated[
        float | None, col("share", "of the apps: those with ρ above the run's limit", label="apps treated unfairly")
    ]
    rho_jain: Annotated[float | None, col("", "Jain's index of 1 / ρ", label="Jain's index", better="high")]
    apps_slower_alone: Annotated[
        int | None, col("apps", "with a job that takes over 1.05 times its app's T_cluster when it runs alone")
    ]
    speeds_assumed_jobs: Annotated[
        int | None, col("jobs", "whose speeds were assumed, since the speed source lacks them (``--unknown-models``)")
    ]
    speeds_assumed_share: Annotated[
        float | None, col("share", "of the trace's GPU hours: jobs with assumed speeds; unknown without times")
    ]
    apps_slow_by_type: Annotated[
        int | None, col("apps", "that are slow because of the GPU types on which they ran (``gpu_types``)")
    ]
    type_speed_mean: Annotated[
        float | None,
        col(
            "",
            "speed of jobs on the types of their GPUs over that on the type of their times, over the GPU time held",
            label="speed by GPU type",
            better="high",
        ),
    ]
    slots: Annotated[int | None, col("GPUs", "of the cluster")]
    slots_in_use_share: Annotated[
        float | None,
        col(
            "share",
            "of the GPUs' time until the last finish, with unfinished apps until the last event: under lease",
            label="slots held",
            better="high",
        ),
    ]
    utilization: Annotated[
        float | None,
        col(
            "share",
            "of the GPUs' time until the last finish, with unfinished apps until the last event: progress",
            label="in use",
            better="high",
        ),
    ]
    slot_seconds: Annotated[float, col("GPU-s", "under lease")]
    run_share: Annotated[float | None, col("share", "of the held GPU time: progress")]
    start_share: Annotated[float | None, col("share", "of the held GPU time: starts")]
    restore_share: Annotated[float | None, col("share", "of the held GPU time: restores")]
    save_share: Annotated[float | None, col("share", "of the held GPU time: saves")]
    idle_share: Annotated[float | None, col("share", "of the held GPU time: nothing done")]
    placement_score_mean: float | None
    queue_length_mean: float | None
    queue_length_max: int | None
    contention_mean: float | None
    cluster_efficiency_mean: float | None
    blocking_index_mean: float | None
    work_while_waiting: Annotated[
        float | None,
        col(
            "",
            "AFS' cluster efficiency over the time in which jobs wait",
            label="work done while jobs waited",
            better="high",
        ),
    ]
    rounds: Annotated[int, col("", "of the arbiter")]
    quiet_rounds: int | None
    stage_calls: int | None
    events: int | None
    suspensions: int | None
    lease_extension_share: Annotated[
        float | None, col("share", "of the chances for a job to keep its GPUs: those in which it kept exactly these")
    ]
    restarts: int | None
    migrations: int | None
    moves_per_job: Annotated[float | None, col("", "restarts and migrations, divided by the jobs", label="moves a job")]
    resizes: int | None
    probes: int | None
    iterations_lost: int | None
    wait_seconds: Annotated[float | None, col("s", "waited by all jobs, pauses by their app left out", label="waited")]
    faults: Annotated[int, col("", "of plugins and machines", label="faults")]
    first_fault: Annotated[str | None, col("", "the first fault of a plugin")]
    fallback_round: int | None
    slots_held_twice: Annotated[int, col("", "leases that began on a slot before an earlier one had ended")]
    jct_mean_by_gang: Mapping[str, float | None]
    """Mean JCT in seconds, by class of gang size."""
    rho_by_kind: Mapping[str, float | None]
    """Statistics of every kind of ρ, by the names of ``RHO_FIGURES``."""
    wait_by_reason: Mapping[str, float]
    """Seconds that jobs waited, by reason; reasons that do not occur are missing."""
    more_by_name: Mapping[str, float | None]
    """Declared figures that have no field in this class, by name."""

    @property
    def apps_that_fit(self) -> int:
        """Return the number of apps, except those that can never run on the cluster."""
        return self.apps - self.apps_left_out

    def flat(self) -> dict[str, object]:
        """Return a row of ``summary.csv``, with each number in its own column."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)[: -len(_NESTED)]}
        plain |= {f"jct_mean_gang_{name}_seconds": self.jct_mean_by_gang.get(name) for _, name in counting.GANGS}
        plain |= {name: self.rho_by_kind.get(name) for name in RHO_FIGURES}
        waited = {f"wait_{each.word}_seconds": self.wait_by_reason.get(each.word, 0.0) for each in Reason}
        return plain | waited | dict(self.more_by_name)


_NESTED = ("jct_mean_by_gang", "rho_by_kind", "wait_by_reason", "more_by_name")
RHO_FIGURES: Final = tuple(f"rho_{kind}_{way}" for kind in KINDS for way in RHO_WAYS)
"""The columns of ``summary.csv`` with statistics of ρ, such as ``rho_static_p90``."""


def summaries_of(run: RunData) -> dict[tuple[str, int], Summary]:
    """Return the summary of every policy and seed of a run."""
    return {key: summary_of(run, *key) for key in run.runs()}


def summarise(run: RunData, counted: Mapping[tuple[str, int], Summary] | None = None) -> pl.DataFrame:
    """Return one row for every policy and seed, with the columns of ``Summary.flat``.

    Args:
        run: tables of the run.
        counted: summaries by policy and seed, if they have been computed already.
    """
    known = summaries_of(run) if counted is None else counted
    return pl.DataFrame([each.flat() for each in known.values()], infer_schema_length=None)


def summary_of(run: RunData, policy: str, seed: int) -> Summary:
    """Return the summary of one policy and seed of a run."""
    one = run.only(policy, seed)
    judged = apps_or_jobs(one)
    figures = figures_of(one)
    named = {name: figures[name] for name in figures if name in Summary.__dataclass_fields__}
    held, reasons = counting.held_seconds(one), counting.by_reason(one)
    counted: dict[str, Any] = {**named, **_fairness(one, judged), **_usage(one, held)}
    counted |= _assumed(one, seed) | _by_type(one)
    return Summary(
        policy=policy,
        seed=seed,
        apps=judged.height,
        apps_finished=judged.filter(pl.col("state") == "finished").height,
        apps_left_out=judged.filter(pl.col("state") == "rejected").height,
        jobs=one.jobs.height,
        apps_slower_alone=counting.slower_alone(one),
        rounds=counting.total(one.counts["rounds"]) or one.rounds.height,
        lease_extension_share=counting.extension_share(one.rounds),
        wait_seconds=counting.waited_seconds(one, reasons),
        work_while_waiting=counting.efficiency_while_waiting(one),
        moves_per_job=_moves_per_job(one),
        faults=faults_of(one),
        first_fault=counting.first_fault(one),
        slots_held_twice=held_twice(one.leases),
        jct_mean_by_gang=counting.jct_by_gang(one.jobs),
        wait_by_reason=reasons,
        more_by_name={name: figures[name] for name in figures if name not in named},
        **counted,
    )


def _assumed(run: RunData, seed: int) -> dict[str, object]:
    """Return the summary's fields on assumed speeds; their values are None unless the run is a simulation."""
    if run.facts is None or run.facts.kind != "simulate":
        return {"speeds_assumed_jobs": None, "speeds_assumed_share": None}
    found = share_of(run.facts.assumptions, seed)
    return {"speeds_assumed_jobs": found.jobs, "speeds_assumed_share": found.gpu_hours_share}


def _by_type(run: RunData) -> dict[str, object]:
    """Return the summary's fields on GPU types; their values are None without speeds by GPU type."""
    found = apps_by_type(run)
    return {
        "apps_slow_by_type": None if found is None else sum(each.slow for each in found),
        "type_speed_mean": mean_speed(run.gpu_types),
    }


def _fairness(run: RunData, judged: pl.DataFrame) -> dict[str, object]:
    """Return the summary's fields on rho: of apps, or of jobs if there are no apps."""
    name = rho_column(run)
    limit = UNFAIR_RHO if run.facts is None else run.facts.unfair_above
    rho = judged.filter(pl.col(name).is_not_null()).sort(name, "app", descending=[True, False])
    return {
        "rho_kind": "themis" if run.facts is None else run.facts.rho,
        "rho_worst": counting.number(rho[name].max()),
        "rho_worst_app": str(rho["app"][0]) if rho.height else None,
        "rho_mean": counting.mean(rho[name]),
        "rho_above_1_share": counting.share_above(rho[name], 1.0),
        "rho_unfair_share": counting.share_above(rho[name], limit),
        "rho_jain": jain(rho[name].to_numpy()),
        "rho_by_kind": {
            f"rho_{kind}_{way}": figure
            for kind, column in _RHO.items()
            for way, figure in _rho_figures(judged[column], limit).items()
        },
    }


def _rho_figures(rho: pl.Series, limit: float) -> dict[str, float | None]:
    """Return the statistics of one kind of ρ, by the names of ``RHO_WAYS``."""
    return {
        "worst": counting.number(rho.max()),
        "p99": counting.number(rho.quantile(0.99, "linear")),
        "p90": counting.number(rho.quantile(0.9, "linear")),
        "mean": counting.mean(rho),
        "above_1_share": counting.share_above(rho, 1.0),
        "unfair_share": counting.share_above(rho, limit),
    }


def _usage(run: RunData, held: float) -> dict[str, object]:
    """Return the summary's fields on GPU time, given the GPU-seconds held."""
    slots, horizon = slot_count(run), counting.horizon_seconds(run)
    changes = () if run.facts is None else run.facts.slot_changes
    there = sum(slots * max(0.0, horizon - at) for at, slots in ((0.0, slots or 0), *changes)) if horizon else 0.0
    capacity = there or None
    spent = _spent(run, held)
    return {
        "slots": slots,
        "slots_in_use_share": held / capacity if capacity else None,
        "utilization": counting.busy_seconds(run) / capacity if capacity and run.jobs.height else None,
        "slot_seconds": held,
        **{f"{activity}_share": spent.get(activity) for activity in ("run", *OVERHEADS)},
    }


def _moves_per_job(run: RunData) -> float | None:
    moves = [counting.total(run.jobs[name]) for name in ("restarts", "migrations")]
    known = [each for each in moves if each is not None]
    return sum(known) / run.jobs.height if known else None


_RHO: Final = {kind: "rho" if kind == "themis" else f"rho_{kind}" for kind in KINDS}


def _spent(run: RunData, held: float) -> dict[str, float]:
    """Return the fractions of held slot time by activity; without segments, at most the fraction of progress."""
    if run.segments.height:
        found = counting.by_activity(run)
        return {name: found.get(name, 0.0) for name in ("run", *OVERHEADS)} if found else {}
    if held and run.jobs.height and not run.jobs["busy_slot_seconds"].null_count():
        return {"run": counting.busy_seconds(run) / held}
    return {}
