"""Part 2, policies: every policy by the main metrics with intervals over seeds, and worst ρ against mean JCT."""

from __future__ import annotations

import html
from typing import Final, Literal

import polars as pl

from eunomia.model.shapes import value
from eunomia_testbed.metrics.intervals import Interval
from eunomia_testbed.report.choice import FAIR, FAST, over_seeds
from eunomia_testbed.report.part import Column, Json, Kind, Part, Table, kept_columns, rounded
from eunomia_testbed.report.view import Whole
from eunomia_testbed.report.words import RHO_NAMES, count


@value
class Metric:
    """A column of the summary, and which way of it is better; None: neither is."""

    name: str
    label: str
    kind: Kind
    digits: int = 0
    better: Literal["low", "high"] | None = "low"
    drawn: bool = True


METRICS: Final = (
    Metric(name="jct_mean_seconds", label="mean JCT", kind="seconds"),
    Metric(name="jct_p99_seconds", label="p99 JCT", kind="seconds"),
    Metric(name="makespan_seconds", label="makespan", kind="seconds"),
    Metric(name="rho_worst", label="worst ρ", kind="number", digits=2),
    Metric(name="rho_unfair_share", label="apps treated unfairly", kind="percent", digits=1),
    Metric(name="slots_in_use_share", label="slots in use", kind="percent", digits=1, better="high"),
    Metric(name="jct_median_seconds", label="median JCT", kind="seconds", drawn=False),
    Metric(name="jct_p95_seconds", label="p95 JCT", kind="seconds", drawn=False),
    Metric(name="rho_mean", label="mean ρ", kind="number", digits=2, drawn=False),
    Metric(name="rho_jain", label="Jain's index", kind="number", digits=3, better="high", drawn=False),
    Metric(name="queue_length_mean", label="mean queue", kind="number", digits=1, drawn=False),
    Metric(name="wait_seconds", label="waited", kind="seconds", drawn=False),
    Metric(name="restarts", label="restarts", kind="number", drawn=False),
    Metric(name="migrations", label="migrations", kind="number", drawn=False),
    Metric(name="faults", label="faults", kind="number", drawn=False),
    Metric(name="fallback_round", label="fallback from round", kind="number", drawn=False),
)
"""What policies are compared by, in the order of the page; what the summary does not know is left out."""


def policies(whole: Whole) -> Part | None:
    """The part; None for a single policy."""
    if len(whole.policies) < 2:
        return None
    rows = {policy: whole.summaries.filter(pl.col("policy") == policy) for policy in whole.policies}
    known = [each for each in METRICS if each.name in whole.summaries.columns]
    known = [each for each in known if whole.summaries[each.name].null_count() < whole.summaries.height]
    found = {each.name: [over_seeds(rows[policy], each.name) for policy in whole.policies] for each in known}
    seeds = max(part.height for part in rows.values())
    return Part(
        name="policies",
        title="Policies",
        question="Which policy, at what price?",
        html=_sentence(whole),
        data={
            "seeds": seeds,
            "taken": [choice.policy for choice in whole.choices.values() if choice.decided],
            "frontiers": [choice.frontier for choice in whole.choices.values()],
            "metrics": [_bars(each, whole.rho_kind, found[each.name]) for each in known if each.drawn],
            "kind": RHO_NAMES[whole.rho_kind],
            "scatter": [_numbers(found[FAST]), _numbers(found[FAIR])] if FAST in found and FAIR in found else None,
        },
        tables=[_table(whole, rows, known, found)],
    )


def _sentence(whole: Whole) -> str:
    if not whole.choices:
        return ""
    kind = RHO_NAMES[whole.rho_kind]
    rule = f"Chosen by the smallest product of worst {kind} and mean JCT, of the policies under which most finished."
    answers = [
        f'<p class="take"><strong>{html.escape(_at(whole, load, choice.answer))}.</strong> '
        f"{html.escape(choice.because[:1].upper() + choice.because[1:])}.</p>"
        for load, choice in whole.choices.items()
    ]
    return f'{"".join(answers)}<p class="asks">{rule}</p>'


def _at(whole: Whole, load: float, answer: str) -> str:
    """The answer, with its load where there are several."""
    return f"At {load:g} times the load: {answer[:1].lower()}{answer[1:]}" if len(whole.choices) > 1 else answer


def _bars(metric: Metric, kind: str, found: list[Interval | None]) -> Json:
    means = [each.mean for each in found if each is not None]
    best = None if metric.better is None else min(means) if metric.better == "low" else max(means)
    return {
        "label": _label(metric, kind),
        "kind": metric.kind,
        "digits": metric.digits,
        "better": metric.better,
        "rows": _numbers(found),
        "best": [each is not None and each.mean == best for each in found],
    }


def _label(metric: Metric, kind: str) -> str:
    """With the kind of ρ that the runs are judged by."""
    return metric.label.replace("ρ", RHO_NAMES[kind])


def _numbers(found: list[Interval | None]) -> list[Json]:
    """Mean and half an interval's width by policy; null where nothing is known."""
    return [
        None if each is None else [rounded(each.mean), rounded(0.0 if each.high is None else each.high - each.mean)]
        for each in found
    ]


def _table(
    whole: Whole, rows: dict[str, pl.DataFrame], known: list[Metric], found: dict[str, list[Interval | None]]
) -> Table:
    """A row a policy: finished of all, and the mean of every metric over its seeds."""
    listed: list[list[Json]] = []
    for at, policy in enumerate(whole.policies):
        mine = rows[policy]
        means = [each.mean if (each := found[metric.name][at]) is not None else None for metric in known]
        done = f"{int(mine['apps_finished'].sum())} of {int(mine['apps'].sum())}"
        listed.append([policy, mine.height, done, *(rounded(mean) for mean in means)])
    title = f"All policies, means over {count(max(row[1] for row in listed), 'seed')}"
    columns = [
        Column(label="policy", kind="policy"),
        Column(label="seeds", kind="number"),
        Column(label="finished", kind="text"),
        *(Column(label=_label(each, whole.rho_kind), kind=each.kind, digits=each.digits) for each in known),
    ]
    return kept_columns(Table(title=title, columns=columns, rows=listed))
