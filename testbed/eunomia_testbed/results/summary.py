"""A run in numbers: a row a policy and seed. The report's sentences and ``summary.csv`` both read this.

Definitions and sources of the metrics: ``docs/reference/metrics.md``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

import polars as pl

from eunomia.contract.verdicts import Reason
from eunomia.model.shapes import value
from eunomia_testbed.metrics.fairness import KINDS, UNFAIR_RHO, jain
from eunomia_testbed.results import counting
from eunomia_testbed.results.counting import apps_or_jobs, faults_of, held_twice, rho_column, slot_count
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

OVERHEADS: Final = ("start", "restore", "save", "idle")
"""Activities of a held GPU other than progress."""


@value
class Summary:
    """The figures of one policy and seed; None is unknown. Shares are fractions of 1.

    ``rho_worst`` to ``rho_jain`` are of the kind of rho that the run is judged by, which ``rho_kind`` names.
    """

    policy: str
    seed: int
    apps: int
    apps_finished: int
    jobs: int
    makespan_seconds: float | None
    jct_mean_seconds: float | None
    jct_median_seconds: float | None
    jct_p95_seconds: float | None
    jct_p99_seconds: float | None
    rho_kind: str
    rho_worst: float | None
    rho_worst_app: str | None
    rho_mean: float | None
    rho_above_1_share: float | None
    rho_unfair_share: float | None  # above the run's limit
    rho_jain: float | None
    slots: int | None
    slots_in_use_share: float | None  # under lease until the last app finished
    utilization: float | None  # making progress until the last app finished
    slot_seconds: float
    run_share: float | None
    start_share: float | None
    restore_share: float | None
    save_share: float | None
    idle_share: float | None
    placement_score_mean: float | None
    queue_length_mean: float | None
    queue_length_max: int | None
    contention_mean: float | None
    cluster_efficiency_mean: float | None
    blocking_index_mean: float | None
    rounds: int
    quiet_rounds: int | None
    stage_calls: int | None
    events: int | None
    suspensions: int | None
    lease_extension_share: float | None
    restarts: int | None
    migrations: int | None
    iterations_lost: int | None
    wait_seconds: float | None
    faults: int
    first_fault: str | None  # of a plugin, and what it raised
    fallback_round: int | None  # the first that the fallback decided in place of the policy
    slots_held_twice: int
    jct_mean_by_gang: Mapping[str, float | None]
    """By class of gang sizes, in seconds."""
    rho_worst_by_kind: Mapping[str, float | None]
    rho_unfair_by_kind: Mapping[str, float | None]
    wait_by_reason: Mapping[str, float]
    """Seconds of jobs, by reason; a reason that is not named gave none."""

    def flat(self) -> dict[str, object]:
        """The row of ``summary.csv``: every number in a column of its own."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)[: -len(_NESTED)]}
        plain |= {f"jct_mean_gang_{name}_seconds": self.jct_mean_by_gang.get(name) for _, name in counting.GANGS}
        for kind in KINDS:
            plain[f"rho_{kind}_worst"] = self.rho_worst_by_kind.get(kind)
            plain[f"rho_{kind}_unfair_share"] = self.rho_unfair_by_kind.get(kind)
        words = (reason.word for reason in Reason)
        return plain | {f"wait_{word}_seconds": self.wait_by_reason.get(word, 0.0) for word in words}


_NESTED = ("jct_mean_by_gang", "rho_worst_by_kind", "rho_unfair_by_kind", "wait_by_reason")


def summaries_of(run: RunData) -> dict[tuple[str, int], Summary]:
    """Count every policy and seed."""
    return {key: summary_of(run, *key) for key in run.runs()}


def summarise(run: RunData, counted: Mapping[tuple[str, int], Summary] | None = None) -> pl.DataFrame:
    """One row for every policy and seed, columns as in ``Summary.flat``.

    Args:
        run: its tables.
        counted: summaries by policy and seed, where they have been counted already.
    """
    known = summaries_of(run) if counted is None else counted
    return pl.DataFrame([each.flat() for each in known.values()], infer_schema_length=None)


def summary_of(run: RunData, policy: str, seed: int) -> Summary:
    """Count one policy and seed."""
    one = run.only(policy, seed)
    judged = apps_or_jobs(one)
    name = rho_column(one)
    limit = UNFAIR_RHO if one.facts is None else one.facts.unfair_above
    rho = judged.filter(pl.col(name).is_not_null()).sort(name, "app", descending=[True, False])
    slots = slot_count(one)
    makespan = counting.number(judged["finish_seconds"].max())
    capacity = slots * makespan if slots and makespan else None
    held = counting.held_seconds(one)
    spent = _spent(one, held)
    reasons = counting.by_reason(one)
    return Summary(
        policy=policy,
        seed=seed,
        apps=judged.height,
        apps_finished=judged.filter(pl.col("state") == "finished").height,
        jobs=one.jobs.height,
        makespan_seconds=makespan,
        jct_mean_seconds=counting.mean(judged["jct_seconds"]),
        jct_median_seconds=counting.number(judged["jct_seconds"].quantile(0.5, "linear")),
        jct_p95_seconds=counting.number(judged["jct_seconds"].quantile(0.95, "linear")),
        jct_p99_seconds=counting.number(judged["jct_seconds"].quantile(0.99, "linear")),
        rho_kind="themis" if one.facts is None else one.facts.rho,
        rho_worst=counting.number(rho[name].max()),
        rho_worst_app=str(rho["app"][0]) if rho.height else None,
        rho_mean=counting.mean(rho[name]),
        rho_above_1_share=counting.share_above(rho[name], 1.0),
        rho_unfair_share=counting.share_above(rho[name], limit),
        rho_jain=jain(rho[name].to_numpy()),
        slots=slots,
        slots_in_use_share=held / capacity if capacity else None,
        utilization=counting.busy_seconds(one) / capacity if capacity and one.jobs.height else None,
        slot_seconds=held,
        run_share=spent.get("run"),
        **{f"{activity}_share": spent.get(activity) for activity in OVERHEADS},
        placement_score_mean=counting.mean(judged["placement_score"]),
        queue_length_mean=counting.queue_mean(one, "waiting_jobs", makespan),
        queue_length_max=counting.most(one.queue["waiting_jobs"]),
        contention_mean=counting.queue_mean(one, "contention", makespan),
        cluster_efficiency_mean=counting.queue_mean(one, "efficiency", makespan),
        blocking_index_mean=counting.queue_mean(one, "blocking_index", makespan),
        rounds=counting.total(one.counts["rounds"]) or one.rounds.height,
        quiet_rounds=counting.most(one.counts["quiet_rounds"]),
        stage_calls=counting.most(one.counts["stage_calls"]),
        events=counting.most(one.counts["events"]),
        suspensions=counting.total(one.rounds["suspended"]),
        lease_extension_share=counting.extension_share(one.rounds),
        restarts=counting.total(one.jobs["restarts"]),
        migrations=counting.total(one.jobs["migrations"]),
        iterations_lost=counting.total(one.jobs["iterations_lost"]),
        wait_seconds=counting.waited_seconds(one, reasons),
        faults=faults_of(one),
        first_fault=counting.first_fault(one),
        fallback_round=counting.most(one.counts["fallback_round"]),
        slots_held_twice=held_twice(one.leases),
        jct_mean_by_gang=counting.jct_by_gang(one.jobs),
        rho_worst_by_kind={kind: counting.number(judged[column].max()) for kind, column in _RHO.items()},
        rho_unfair_by_kind={kind: counting.share_above(judged[column], limit) for kind, column in _RHO.items()},
        wait_by_reason=reasons,
    )


_RHO: Final = {kind: "rho" if kind == "themis" else f"rho_{kind}" for kind in KINDS}


def _spent(run: RunData, held: float) -> dict[str, float]:
    """Share of the held slot time by activity; without segments only what made progress is known, if that is."""
    if run.segments.height:
        found = counting.by_activity(run)
        return {name: found.get(name, 0.0) for name in ("run", *OVERHEADS)} if found else {}
    if held and run.jobs.height and not run.jobs["busy_slot_seconds"].null_count():
        return {"run": counting.busy_seconds(run) / held}
    return {}
