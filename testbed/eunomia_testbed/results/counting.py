"""Computes sums and fractions from a run's tables, reproducibly to the last bit.

``fsum`` and numpy add in a fixed order; polars adds the rows of a group in a varying order.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Final

import numpy as np
import polars as pl

from eunomia.contract.decisions import CHANGED
from eunomia.units import Ints, Reals
from eunomia_testbed.results.dots import dot
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.slots import numbered

GANGS: Final = ((1, "1"), (2, "2"), (4, "4"), (8, "8"), (16, "16"), (math.inf, "more"))
"""Classes of gang sizes: the largest size of each, and its name."""
_PART: Final = 65_536
_CLEARLY: Final = 1.05
"""A time alone above this multiple of T_cluster counts as longer, beyond rounding errors."""
OWN_CHOICE: Final = "paused_by_app"
"""The wait reason of pauses by an app's own tuner, which do not count as waiting."""


def apps_or_jobs(run: RunData) -> pl.DataFrame:
    """Return the rows over which fairness is computed: apps, or jobs if the run has no apps."""
    return run.apps if run.apps.height else run.jobs


def rho_column(run: RunData) -> str:
    """Return the name of the column, in apps and jobs, with the run's kind of rho."""
    kind = "themis" if run.facts is None else run.facts.rho
    return "rho" if kind == "themis" else f"rho_{kind}"


def slower_alone(run: RunData) -> int | None:
    """Return the number of apps with a finished job whose time alone is clearly above its app's T_cluster.

    T_cluster assumes linear speed-up (Themis, section 4.2), so such an app has a large rho under any policy. None: the
    run has no times alone.
    """
    alone = run.apps.select("app", "alone_seconds").drop_nulls()
    if alone.is_empty() or not run.jobs["exclusive_seconds"].count():
        return None
    longest = run.jobs.filter(pl.col("state") == "finished").group_by("app").agg(pl.col("exclusive_seconds").max())
    both = longest.join(alone, on="app")
    return both.filter(pl.col("exclusive_seconds") > _CLEARLY * pl.col("alone_seconds")).height


def slot_count(run: RunData) -> int | None:
    """Return the number of slots: from the facts, or else the rounds, or else the slots that were ever leased."""
    if run.facts is not None and run.facts.slots is not None:
        return run.facts.slots
    counted = number((run.rounds["free_slots"] + run.rounds["busy_slots"]).max())
    seen = run.leases.select("machine", "slot").n_unique() if run.leases.height else None
    return int(counted) if counted is not None else seen


def faults_of(run: RunData) -> int:
    """Return the number of rounds with a fault plus the number of ``fault`` events."""
    rounds = run.rounds["fault"].is_not_null().sum()
    return int(rounds) + run.events.filter(pl.col("kind").str.starts_with("fault")).height


def first_fault(run: RunData) -> str | None:
    """Return the first fault of a plugin, as ``plugin (stage): error``; None: there was none."""
    faults = run.rounds.filter(pl.col("fault").is_not_null()).sort("round")["fault"]
    return str(faults[0]) if faults.len() else None


def held_twice(leases: pl.DataFrame) -> int:
    """Return the number of leases that began before an earlier lease of the same slot had ended.

    An open lease counts as never ending.
    """
    slots = _slots(leases)
    order = np.argsort(slots, kind="stable")
    starts, ends = leases["start_seconds"].to_numpy(), leases["end_seconds"].fill_null(math.inf).to_numpy()
    epochs = leases["epoch"].fill_null(-1).to_numpy()
    borders = np.flatnonzero(np.diff(slots[order])) + 1
    return sum(_overlaps(starts[rows], ends[rows], epochs[rows]) for rows in np.split(order, borders))


def _overlaps(starts: Reals, ends: Reals, epochs: Ints) -> int:
    """Return the number of leases of one slot that began before an earlier lease had ended."""
    order = np.lexsort((epochs, starts))
    latest = np.maximum.accumulate(ends[order])
    return int((starts[order][1:] < latest[:-1] - 1e-9).sum())


def _slots(leases: pl.DataFrame) -> Ints:
    """Return an integer for each lease's slot, different for each policy, seed, machine and slot."""
    numbers = numbered(leases["machine"])[0] * (int(number(leases["slot"].max()) or 0) + 1)
    numbers += leases["slot"].to_numpy()
    for name, different in leases.select(pl.col("policy", "seed").n_unique()).row(0, named=True).items():
        if different > 1:
            numbers = numbers * (different + 1) + leases[name].rank("dense").to_numpy()
    return numbers


def horizon_seconds(run: RunData) -> float | None:
    """Return the end of the period to which fractions of slot time refer, in seconds; None: no time is known.

    If all apps finished, it is the last finish, or the last release of a slot if that is later. Otherwise it is the
    last known event, since unfinished apps held slots until then.
    """
    known = [run.apps["finish_seconds"], run.jobs["finish_seconds"], run.leases["end_seconds"]]
    judged = apps_or_jobs(run).filter(pl.col("state").ne_missing("rejected"))
    if judged["finish_seconds"].null_count():
        known += [run.leases["start_seconds"], run.counts["end_seconds"], run.segments["end_seconds"]]
        known += [run.rounds["time_seconds"], run.queue["time_seconds"], run.waits["end_seconds"]]
    return max((found for column in known if (found := number(column.max())) is not None), default=None)


def held_seconds(run: RunData) -> float:
    """Return the slot-seconds under lease; an open lease counts until the last event.

    If leases were not kept, the slot-seconds held by the jobs are returned.
    """
    horizon = horizon_seconds(run) or 0.0
    if run.leases.is_empty():
        return _fsum(run.jobs["slot_seconds"].drop_nulls())
    ends = run.leases["end_seconds"].fill_null(horizon).clip(upper_bound=horizon)
    return _fsum((ends - run.leases["start_seconds"]).clip(lower_bound=0.0))


def busy_seconds(run: RunData) -> float:
    """Return the slot-seconds in which jobs made progress; if unknown for a job, all its slot-seconds count."""
    return _fsum(run.jobs["busy_slot_seconds"].fill_null(run.jobs["slot_seconds"]).drop_nulls())


def by_activity(run: RunData) -> dict[str, float]:
    """Return the fraction of the held slot time by activity."""
    spent = _sums(run.segments["activity"], run.segments["end_seconds"] - run.segments["start_seconds"])
    total = math.fsum(spent.values())
    return {name: seconds / total for name, seconds in spent.items()} if total else {}


def by_reason(run: RunData) -> dict[str, float]:
    """Return the total seconds that jobs waited, by reason; open waits do not count."""
    waits = run.waits.filter(pl.col("end_seconds").is_not_null())
    return _sums(waits["reason"], waits["end_seconds"] - waits["start_seconds"])


def waited_seconds(run: RunData, reasons: dict[str, float]) -> float | None:
    """Return the total seconds that jobs waited, without pauses by their own apps; None: unknown."""
    if run.jobs["wait_seconds"].null_count() < run.jobs.height:
        return _fsum(run.jobs["wait_seconds"].drop_nulls())
    return math.fsum(seconds for reason, seconds in reasons.items() if reason != OWN_CHOICE) if reasons else None


def jct_by_gang(jobs: pl.DataFrame) -> dict[str, float | None]:
    """Return the mean JCT of jobs in seconds by class of gang size; None: the class has no known JCT."""
    known = jobs.filter(pl.col("jct_seconds").is_not_null() & pl.col("slots_asked").is_not_null())
    gang, jct = known["slots_asked"].to_numpy(), known["jct_seconds"].to_numpy()
    found, least = {}, 0.0
    for most, name in GANGS:
        mine = jct[(gang > least) & (gang <= most)]
        found[name] = float(mine.mean()) if mine.size else None
        least = most
    return found


def extension_share(rounds: pl.DataFrame) -> float | None:
    """Return the fraction of leases up for renewal that kept exactly their slots; None: there were none."""
    sums = [total(rounds[name]) for name in ("kept", *CHANGED)]
    chances = sum(each or 0 for each in sums)
    return (sums[0] or 0) / chances if chances and sums[0] is not None else None


def time_mean(frame: pl.DataFrame, column: str, until: float | None) -> float | None:
    """Return the time-weighted mean of a column from 0 to ``until`` seconds; a value holds until the next row."""
    known = frame.filter(pl.col(column).is_not_null())
    if known.is_empty() or not until:
        return None
    begin = np.clip(known["time_seconds"].to_numpy(), 0.0, until)
    return float((known[column].to_numpy() * np.diff(np.append(begin, until))).sum() / until)


def efficiency_while_waiting(run: RunData) -> float | None:
    """Return the mean cluster efficiency while any job waits; None: it is unknown, or no job waits.

    Cluster efficiency is defined by AFS (NSDI'21, section 2.2): the work done, relative to one GPU's, per GPU of the
    cluster.
    """
    known = run.queue.select("time_seconds", "waiting_jobs", "efficiency").drop_nulls().sort("time_seconds")
    if known.height < 2:
        return None
    lengths = np.append(np.diff(known["time_seconds"].to_numpy()), 0.0) * (known["waiting_jobs"].to_numpy() > 0)
    total = float(lengths.sum())
    return dot(lengths, known["efficiency"].to_numpy()) / total if total > 0.0 else None


def share_above(values: pl.Series, limit: float) -> float | None:
    """Return the fraction of known values above a limit; None: no value is known."""
    known = values.drop_nulls()
    return int((known > limit).sum()) / known.len() if known.len() else None


def mean(column: pl.Series) -> float | None:
    """Return the mean of a column's known values; None: no value is known."""
    known = column.drop_nulls()
    return _fsum(known) / known.len() if known.len() else None


def exact_sum(column: pl.Series) -> float | None:
    """Return the exactly rounded sum of a column's known values; None: no value is known."""
    known = column.drop_nulls()
    return _fsum(known) if known.len() else None


def total(column: pl.Series) -> int | None:
    """Return the sum of a column's known integers; None: no value is known."""
    return int(column.sum()) if column.null_count() < column.len() else None


def number(value: object) -> float | None:
    """Return a number as a float; None: the value is not a number."""
    return float(value) if isinstance(value, int | float) else None


def _sums(names: pl.Series, seconds: pl.Series) -> dict[str, float]:
    return {name: _fsum(seconds.filter(names == name)) for name in sorted(names.unique())}


def most(column: pl.Series) -> int | None:
    """Return the maximum of a column of counts; None: no value is known."""
    found = number(column.max())
    return None if found is None else int(found)


def _fsum(column: pl.Series) -> float:
    """Return the exactly rounded sum of a column without nulls, converted in blocks to save memory."""
    parts = (column.slice(begin, _PART) for begin in range(0, column.len(), _PART))
    return math.fsum(chain.from_iterable(part.to_list() for part in parts))
