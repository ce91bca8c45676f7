"""A run in numbers: a row a policy and seed. The report's sentences and ``summary.csv`` both read this."""

from __future__ import annotations

import dataclasses
import math

import polars as pl

from eunomia_testbed.results.run_data import RunData

UNFAIR_RHO = 1.05
"""Above this ρ an app counts as treated unfairly: 1 with room for what discrete slots and rounds cost (Shockwave)."""

OVERHEADS = ("start", "restore", "save", "idle")
"""What a held slot does beside making progress."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What one policy did with one seed; None is unknown. Shares are fractions of 1."""

    policy: str
    seed: int
    apps: int
    apps_finished: int
    jobs: int
    makespan_seconds: float | None
    jct_mean_seconds: float | None
    jct_p99_seconds: float | None
    rho_worst: float | None
    rho_worst_app: str | None
    rho_mean: float | None
    rho_above_1_share: float | None
    rho_unfair_share: float | None
    slots: int | None
    slots_in_use_share: float | None
    slot_seconds: float
    run_share: float | None
    start_share: float | None
    restore_share: float | None
    save_share: float | None
    idle_share: float | None
    rounds: int
    suspensions: int | None
    restarts: int | None
    iterations_lost: int | None
    faults: int
    slots_held_twice: int


def summarise(run: RunData) -> pl.DataFrame:
    """One row for every policy and seed, columns as in ``Summary``."""
    rows = [summary_of(run, policy, seed) for policy, seed in run.runs()]
    return pl.DataFrame([dataclasses.asdict(row) for row in rows], infer_schema_length=None)


def summary_of(run: RunData, policy: str, seed: int) -> Summary:
    """Count one policy and seed."""
    one = run.only(policy, seed)
    judged = apps_or_jobs(one)
    rho = judged.filter(pl.col("rho").is_not_null()).sort("rho", "app", descending=[True, False])
    slots = slot_count(one)
    makespan = _number(judged["finish_seconds"].max())
    held = _held_seconds(one)
    spent = _by_activity(one)
    return Summary(
        policy=policy,
        seed=seed,
        apps=judged.height,
        apps_finished=judged.filter(pl.col("state") == "finished").height,
        jobs=one.jobs.height,
        makespan_seconds=makespan,
        jct_mean_seconds=_mean(judged["jct_seconds"]),
        jct_p99_seconds=_number(judged["jct_seconds"].quantile(0.99, "linear")),
        rho_worst=_number(rho["rho"].max()),
        rho_worst_app=str(rho["app"][0]) if rho.height else None,
        rho_mean=_mean(rho["rho"]),
        rho_above_1_share=_share(rho, 1.0),
        rho_unfair_share=_share(rho, UNFAIR_RHO),
        slots=slots,
        slots_in_use_share=held / (slots * makespan) if slots and makespan else None,
        slot_seconds=held,
        run_share=spent.get("run", 0.0) if spent else None,
        start_share=spent.get("start", 0.0) if spent else None,
        restore_share=spent.get("restore", 0.0) if spent else None,
        save_share=spent.get("save", 0.0) if spent else None,
        idle_share=spent.get("idle", 0.0) if spent else None,
        rounds=one.rounds.height,
        suspensions=_total(one.rounds["suspended"]),
        restarts=_total(one.jobs["restarts"]),
        iterations_lost=_total(one.jobs["iterations_lost"]),
        faults=faults_of(one),
        slots_held_twice=held_twice(one.leases),
    )


def apps_or_jobs(run: RunData) -> pl.DataFrame:
    """What fairness is judged by: the apps, or the jobs of a run that knows no apps."""
    return run.apps if run.apps.height else run.jobs


def slot_count(run: RunData) -> int | None:
    """Slots of the cluster: as the facts say, else as the rounds counted, else those that were ever leased."""
    if run.facts is not None and run.facts.slots is not None:
        return run.facts.slots
    counted = _number((run.rounds["free_slots"] + run.rounds["busy_slots"]).max())
    seen = run.leases.select("machine", "slot").n_unique() if run.leases.height else None
    return int(counted) if counted is not None else seen


def faults_of(run: RunData) -> int:
    """Rounds with a fault, and events of a kind that begins with ``fault``."""
    rounds = run.rounds["fault"].is_not_null().sum()
    return int(rounds) + run.events.filter(pl.col("kind").str.starts_with("fault")).height


def held_twice(leases: pl.DataFrame) -> int:
    """Leases that began before an earlier one of the same slot had ended; an open lease never ends."""
    slot = ["policy", "seed", "machine", "slot"]
    latest = pl.col("end_seconds").fill_null(float("inf")).cum_max().shift(1).over(slot)
    ordered = leases.sort(*slot, "start_seconds", "epoch")
    return ordered.filter(pl.col("start_seconds") < latest - 1e-9).height


def _held_seconds(run: RunData) -> float:
    """Slot time under lease; a lease that is still open counts to the last moment known of."""
    last = _number(run.leases["end_seconds"].max()) or 0.0
    return math.fsum(run.leases["end_seconds"].fill_null(last) - run.leases["start_seconds"])


def _by_activity(run: RunData) -> dict[str, float]:
    """Share of the held slot time by activity; ``fsum``, for polars adds groups in an order that changes."""
    spans = run.segments.select("activity", (pl.col("end_seconds") - pl.col("start_seconds")).alias("seconds"))
    names = sorted(spans["activity"].unique())
    spent = {name: math.fsum(spans.filter(pl.col("activity") == name)["seconds"]) for name in names}
    total = math.fsum(spent.values())
    return {name: seconds / total for name, seconds in spent.items()} if total else {}


def _share(rho: pl.DataFrame, above: float) -> float | None:
    return rho.filter(pl.col("rho") > above).height / rho.height if rho.height else None


def _mean(column: pl.Series) -> float | None:
    known = column.drop_nulls()
    return math.fsum(known) / known.len() if known.len() else None


def _total(column: pl.Series) -> int | None:
    """The sum of what is known; None where nothing is."""
    return int(column.sum()) if column.null_count() < column.len() else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
