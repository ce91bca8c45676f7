"""The data of the page's parts: the runs that the page shows one at a time, and their comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from eunomia.model.shapes import builds
from eunomia_testbed.evidence.evidence import Evidence, evidence_of
from eunomia_testbed.evidence.goals import MEAN_JCT
from eunomia_testbed.evidence.judging import Answers, judge
from eunomia_testbed.report.groups import Groups, groups_of
from eunomia_testbed.report.waiting import waits_with_apps
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import Summary, summary_of
from eunomia_testbed.results.tables import TABLES

UNITS: Final = {"d": 86_400, "h": 3_600, "min": 60, "s": 0}
"""Units of time, largest first, with their lengths in seconds; 0 for seconds, the unit of any shorter time."""
MOST_RUNS, MOST_POLICIES = 6, 12
"""Largest numbers of runs and policies with views; beyond them, only the first seed of the first policies has one."""


@builds
class View:
    """The data of one policy and seed, for parts on a single run."""

    run: RunData
    policy: str
    seed: int
    summary: Summary
    waits: pl.DataFrame
    """The result of ``waits_with_apps``."""
    share: float
    """This run's fraction of the page's limits on rows and points."""
    evidence: Evidence
    """The metrics of every policy with their intervals."""
    answers: Answers | None = None
    """The answers by goal at this run's load; None: there is only one policy."""

    def most(self, rows: int) -> int:
        """Return this run's share of a limit on rows, at least 20."""
        return max(int(rows * self.share), 20)


@builds
class Whole:
    """Every policy and seed of the result."""

    run: RunData
    policies: Sequence[str]
    """Names of the policies, in the order of the command."""
    summaries: pl.DataFrame
    """The summaries, one row for each policy and seed."""
    views: Sequence[View]
    """The runs that the page shows one at a time."""
    evidence: Evidence
    """The metrics of every policy with their intervals."""
    answers: Mapping[float, Answers]
    """The answers by goal, for each load; empty: no load has several policies."""
    groups: Groups
    """The groups of jobs by user, model and length."""

    @property
    def rho_kind(self) -> str:
        """Return the kind of ρ by which runs are compared."""
        return "themis" if self.run.facts is None else self.run.facts.rho

    @property
    def app_count(self) -> int:
        """Return the number of apps in the workload."""
        return max((view.summary.apps for view in self.views), default=0)

    @property
    def time_unit(self) -> str:
        """Return the unit for compared times: the largest in which the shortest mean JCT is at least 3."""
        known = self.summaries["jct_mean_seconds"].cast(pl.Float64).fill_nan(None)
        shortest = known.min()
        least = float(shortest) if isinstance(shortest, int | float) else 0.0
        return next(name for name, size in UNITS.items() if least >= 3 * size)

    @property
    def first(self) -> int:
        """Return the index of the view that opens first: that of the policy with the shortest mean JCT, if compared."""
        found = [answers.of(MEAN_JCT.name) for answers in self.answers.values()]
        first = [answer.best[0] for answer in found if answer is not None]
        return next((at for at, view in enumerate(self.views) if view.policy in first), 0)

    @property
    def names(self) -> list[str]:
        """Return the name of each view: its policy, with its seed if several seeds are shown."""
        several = len({view.seed for view in self.views}) > 1
        return [f"{view.policy}, seed {view.seed}" if several else view.policy for view in self.views]


def whole_of(run: RunData, counted: Mapping[tuple[str, int], Summary] | None = None) -> Whole:
    """Summarize every policy and seed once, and choose the runs that the page shows.

    Args:
        run: a run of one or more policies.
        counted: summaries by policy and seed, if they have been computed already.
    """
    parts = split(run) or {("", 0): run}
    order = _in_order(run, list(dict.fromkeys(policy for policy, _ in parts)))
    known = counted or {}
    summaries = {key: known[key] if key in known else summary_of(part, *key) for key, part in parts.items()}
    frame = pl.DataFrame([row.flat() for row in summaries.values()], infer_schema_length=None)
    evidence = evidence_of(run.facts, frame, run.resamples)
    answers = _answers(run, evidence, frame, order)
    shown = _shown(list(parts), order)
    views = [
        View(
            run=parts[key],
            policy=key[0],
            seed=key[1],
            summary=summaries[key],
            waits=waits_with_apps(parts[key]),
            share=1 / len(shown),
            evidence=evidence,
            answers=answers.get(_load(run, key[0])),
        )
        for key in shown
    ]
    return Whole(
        run=run, policies=order, summaries=frame, views=views, evidence=evidence, answers=answers, groups=groups_of(run)
    )


def split(run: RunData) -> dict[tuple[str, int], RunData]:
    """Split a run by policy and seed, in one pass over each table."""
    keys = run.runs()
    if len(keys) <= 1:
        return dict.fromkeys(keys, run)
    tables = {name: _by_key(run.table(name)) for name in TABLES}
    records = {name: _by_key(frame) for name, frame in run.records.items()}
    found: dict[tuple[str, int], RunData] = {}
    for key in keys:
        own: dict[str, Any] = {name: rows.get(key, run.table(name).clear()) for name, rows in tables.items()}
        own["records"] = {name: rows[key] for name, rows in records.items() if key in rows}
        found[key] = dataclasses.replace(run, **own)
    return found


def _answers(run: RunData, evidence: Evidence, summaries: pl.DataFrame, order: Sequence[str]) -> dict[float, Answers]:
    """Compare the policies at each load, without those whose fallback decided some rounds."""
    replaced = set(summaries.filter(pl.col("fallback_round").is_not_null())["policy"].to_list())
    kind = "themis" if run.facts is None else run.facts.rho
    by_load: dict[float, list[str]] = {}
    for policy in (each for each in order if each not in replaced):
        by_load.setdefault(_load(run, policy), []).append(policy)
    found = {load: judge(evidence, mine, kind=kind) for load, mine in sorted(by_load.items()) if len(mine) > 1}
    return {load: answers for load, answers in found.items() if answers.goals}


def _load(run: RunData, policy: str) -> float:
    return 1.0 if run.facts is None else run.facts.loads.get(policy, 1.0)


def _by_key(frame: pl.DataFrame) -> Mapping[Any, pl.DataFrame]:
    return frame.partition_by("policy", "seed", as_dict=True, maintain_order=True) if frame.height else {}


def _in_order(run: RunData, found: list[str]) -> list[str]:
    """Return the policies in the order of the command; policies that it does not name come last."""
    named = [policy for policy in (run.facts.profiles if run.facts is not None else {}) if policy in found]
    return named + [policy for policy in found if policy not in named]


def _shown(keys: list[tuple[str, int]], order: Sequence[str]) -> list[tuple[str, int]]:
    by_policy = [[key for key in keys if key[0] == policy] for policy in order]
    if len(keys) <= MOST_RUNS:
        return [key for mine in by_policy for key in mine]
    return [mine[0] for mine in by_policy[:MOST_POLICIES]]
