"""Writes how real and simulated runs of a replay differ: each figure's difference by cause, and policy order.

The tables are ``slot-time.csv``, ``resizes.csv``, ``fidelity.csv``, ``rho.csv`` and ``order.csv``.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from eunomia.errors import EunomiaError
from eunomia.model.shapes import builds
from eunomia_appmaster.csv_cells import csv_text
from eunomia_testbed.evidence.draws import draws_of_seeds
from eunomia_testbed.evidence.evidence import Evidence, evidence_of
from eunomia_testbed.performance.replay_profiles import Costs, Profiles
from eunomia_testbed.replay.causes import NO_DECISIONS, Cause, Decisions, SlotTime, slot_time
from eunomia_testbed.replay.cells import RealRun, is_done, state_folder
from eunomia_testbed.replay.fidelity import (
    HEADINGS,
    MAKESPAN,
    MEAN_JCT,
    DifferenceSplit,
    figures_in,
    mean_figures,
    over_repeats,
    split,
    words_of,
)
from eunomia_testbed.replay.fidelity import rho_error as rho_error_of
from eunomia_testbed.replay.given_files import record_of_run
from eunomia_testbed.replay.live_causes import decisions_of
from eunomia_testbed.replay.order import OrderVerdict, order_verdict
from eunomia_testbed.replay.plan import ReplayPlan
from eunomia_testbed.replay.replacing import run_times, stages_of
from eunomia_testbed.replay.resize_figures import HEADINGS as RESIZE_HEADINGS
from eunomia_testbed.replay.resize_figures import resize_figures
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import summarise
from eunomia_testbed.results.writing import write_text

SLOT_TIME, FIDELITY, ORDER, RHO, RESIZES = "slot-time.csv", "fidelity.csv", "order.csv", "rho.csv", "resizes.csv"
SLOT_TIME_HEADINGS: Final = ("policy", "side", "repeat", "cause", "slot_seconds", "share")
RHO_HEADINGS: Final = ("policy", "repeat", "apps", "median_error", "worst_error", "worst_app")
NOT_SPLIT: Final = "differences are not split by cause: the waits that faults cause would count as costs"
ORDERED_BY: Final = (MEAN_JCT, MAKESPAN)
"""The figures by which the order of policies is compared."""


@builds
class ReplaySides:
    """The runs that are compared.

    Attributes:
        out: folder of the replay.
        plan: plan of the replay.
        profiles: the rates measured before the replay.
        costs: the costs measured before the replay.
        runs: the real runs of the replay; those that have not ended are left out.
        real: tables of the real runs.
        simulated: tables of the simulation.
    """

    out: Path
    plan: ReplayPlan
    profiles: Profiles
    costs: Costs
    runs: tuple[RealRun, ...]
    real: RunData
    simulated: RunData

    @property
    def done(self) -> tuple[RealRun, ...]:
        """Return the real runs that have ended."""
        return tuple(run for run in self.runs if is_done(self.out, run))


def write_apart(sides: ReplaySides) -> list[str]:
    """Write the tables, and return their content as lines of text."""
    splits: dict[str, list[tuple[DifferenceSplit, ...]]] = defaultdict(list)
    spent: list[tuple[object, ...]] = []
    rho: list[tuple[object, ...]] = []
    shares: dict[tuple[str, str], list[SlotTime]] = defaultdict(list)
    resized: list[tuple[object, ...]] = []
    changes: list[str] = []
    way = "live" if sides.plan.live else "restart"
    for run in sides.done:
        decisions, parts = _of_run(sides, run)
        if parts:
            splits[run.policy].append(parts)
        for side, data, known in (("real", sides.real, decisions), ("simulated", sides.simulated, NO_DECISIONS)):
            time = slot_time(data, run.policy, run.seed, known)
            shares[run.policy, side].append(time)
            spent += [(run.policy, side, run.repeat, *row.values()) for row in time.rows()]
            figures = resize_figures(data, run.policy, run.seed, known, time)
            resized.append((run.policy, side, run.repeat, way, *figures.row()))
            changes += [f"{run.name}, {side}: {figures.words()}"] if figures.resizes else []
        real = figures_in(sides.real, run.policy, run.seed)
        error = rho_error_of(real, mean_figures(sides.simulated, run.policy))
        if error is not None:
            row = (error.apps, error.median_error, error.worst_error, error.worst_app)
            rho.append((run.policy, run.repeat, *row))
    rows = over_repeats(splits)
    verdicts = _verdicts(sides)
    for name, headings, lines in (
        (SLOT_TIME, SLOT_TIME_HEADINGS, spent),
        (RESIZES, RESIZE_HEADINGS, resized),
        (FIDELITY, HEADINGS, rows),
        (RHO, RHO_HEADINGS, rho),
    ):
        write_text(csv_text([headings, *lines]), sides.out / name)
    _write_order(sides.out, verdicts)
    why = [] if sides.plan.faults is None else [NOT_SPLIT]
    return [*_share_lines(shares), *changes, *why, *words_of(rows), *(verdict.describe() for verdict in verdicts)]


def _of_run(sides: ReplaySides, run: RealRun) -> tuple[Decisions, tuple[DifferenceSplit, ...]]:
    """Return the periods missing from a run's tables, and its differences by cause; empty: not available."""
    record = record_of_run(state_folder(sides.out, run))
    try:
        record.poll()
        decisions = decisions_of(record)
        if sides.plan.faults is not None:
            return decisions, ()
        times = run_times(record, sides.plan, sides.profiles, sides.costs)
        with tempfile.TemporaryDirectory(prefix="eunomia-replay-") as folder:
            stages = stages_of(
                sides.plan,
                sides.profiles,
                sides.costs,
                times,
                policy=run.policy,
                seed=run.seed,
                folder=Path(folder),
            )
    except EunomiaError as error:  # a failed comparison must not lose the tables of the runs
        structlog.get_logger().warning("replay.not_explained", run=run.name, why=str(error))
        return NO_DECISIONS, ()
    finally:
        record.close()
    return decisions, split(figures_in(sides.real, run.policy, run.seed), stages)


def _verdicts(sides: ReplaySides) -> list[OrderVerdict]:
    policies = [policy for policy in sides.plan.profiles if any(run.policy == policy for run in sides.done)]
    if len(policies) < 2:
        return []
    real, simulated = _evidence(sides.real), _evidence(sides.simulated)
    return [order_verdict(real, simulated, policies, figure) for figure in ORDERED_BY]


def _evidence(data: RunData) -> Evidence:
    metrics = summarise(data)
    made = evidence_of(None, metrics)
    return Evidence(draws=draws_of_seeds(metrics["seed"].n_unique()), drawn=made.drawn)


def _write_order(out: Path, verdicts: Sequence[OrderVerdict]) -> None:
    rows = [pair.row(verdict.figure) for verdict in verdicts for pair in verdict.pairs]
    if rows:
        write_text(csv_text([tuple(rows[0]), *(tuple(row.values()) for row in rows)]), out / ORDER)


def _share_lines(shares: Mapping[tuple[str, str], Sequence[SlotTime]]) -> list[str]:
    """Return a line for each policy and side with the mean share of slot time by cause, if at least 0.05 %."""
    lines = []
    for (policy, side), times in shares.items():
        means = {cause: sum(time.share(cause) for time in times) / len(times) for cause in Cause}
        parts = ", ".join(f"{cause.value} {mean:.1%}" for cause, mean in means.items() if mean >= 0.0005)
        lines.append(f"{policy}, {side} slot time: {parts}")
    return lines
