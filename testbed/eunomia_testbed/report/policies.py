"""Part 2, policies: every policy by the main metrics with intervals over seeds, and worst ρ against mean JCT."""

from __future__ import annotations

import html
from typing import Final

import polars as pl

from eunomia.model.shapes import value
from eunomia_testbed.metrics.intervals import Interval
from eunomia_testbed.report.choice import FAIR, FAST, over_seeds
from eunomia_testbed.report.part import Column, Json, Kind, Part, Table, kept_columns, rounded
from eunomia_testbed.report.view import Whole
from eunomia_testbed.report.words import RHO_NAMES, count
from eunomia_testbed.results.columns import Better, ColumnSpec, declared
from eunomia_testbed.results.figures import all_of
from eunomia_testbed.results.summary import Summary


@value
class Compared:
    """A column of the summary, as declared, on the page; ``drawn`` as bars, or only in the table."""

    name: str
    label: str
    kind: Kind
    digits: int
    better: Better | None
    hint: str
    drawn: bool


DRAWN: Final = ("jct_mean_seconds", "jct_p99_seconds", "makespan_seconds", "rho_worst", "rho_unfair_share",
                "slots_in_use_share")  # fmt: skip
"""Metrics that the page compares as bars, in the order of the page."""
LISTED: Final = ("jct_median_seconds", "jct_p95_seconds", "rho_mean", "rho_jain", "queue_length_mean", "wait_seconds",
                 "restarts", "migrations", "resizes", "faults", "fallback_round")  # fmt: skip
"""Further metrics of the table."""
_DIGITS: Final = {"rho_worst": 2, "rho_mean": 2, "rho_jain": 3, "queue_length_mean": 1}


def compared(whole: Whole) -> list[Compared]:
    """Return the labelled columns by which the page compares policies; those that plugins declare come last."""
    specs = {name: (spec, spec.label, spec.better) for name, spec in declared(Summary).items()}
    specs |= {figure.name: (spec, figure.label, figure.better) for _, _, spec, figure in all_of(whole.run)}
    of_plugins = [figure.name for columns in whole.run.added.values() for s in columns.values() for figure in s.summary]
    more = [name for name, (_, label, _) in specs.items() if label and name not in (*DRAWN, *LISTED, *of_plugins)]
    names = [*DRAWN, *LISTED, *more, *of_plugins]
    drawn = {*DRAWN, *of_plugins}
    known = [name for name in names if name in whole.summaries.columns]
    return [_compared(whole, name, *specs[name], drawn=name in drawn) for name in known]


def _compared(whole: Whole, name: str, spec: ColumnSpec, label: str, better: Better | None, *, drawn: bool) -> Compared:
    kind: Kind = "seconds" if spec.unit == "s" else "percent" if spec.unit == "share" else "number"
    hint = f"{spec.meaning}, in {spec.unit}" if spec.unit else spec.meaning
    named = f"{label}{_of_seeds(whole)}" if name == FAIR else label
    return Compared(
        name=name,
        label=named.replace("ρ", RHO_NAMES[whole.rho_kind]),
        kind=kind,
        digits=1 if kind == "percent" else _DIGITS.get(name, 0 if name in (*DRAWN, *LISTED) else 3),
        better=better,
        hint=hint,
        drawn=drawn,
    )


def _of_seeds(whole: Whole) -> str:
    """Say which worst ρ the page shows: that of the only seed, or the mean over seeds."""
    seeds = whole.summaries["seed"].unique()
    return ", mean of seeds" if seeds.len() > 1 else f", seed {seeds[0]}"


def policies(whole: Whole) -> Part | None:
    """Make the part; None: the run has a single policy."""
    if len(whole.policies) < 2:
        return None
    rows = {policy: whole.summaries.filter(pl.col("policy") == policy) for policy in whole.policies}
    known = [each for each in compared(whole) if whole.summaries[each.name].null_count() < whole.summaries.height]
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
            "metrics": [_bars(each, found[each.name]) for each in known if each.drawn],
            "kind": RHO_NAMES[whole.rho_kind] + _of_seeds(whole),
            "unit": whole.time_unit,
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
    """Return the answer, with its load if there are several loads."""
    return f"At {load:g} times the load: {answer[:1].lower()}{answer[1:]}" if len(whole.choices) > 1 else answer


def _bars(metric: Compared, found: list[Interval | None]) -> Json:
    means = [each.mean for each in found if each is not None]
    best = None if metric.better is None else min(means) if metric.better == "low" else max(means)
    return {
        "label": metric.label,
        "kind": metric.kind,
        "digits": metric.digits,
        "better": metric.better,
        "rows": _numbers(found),
        "best": [each is not None and each.mean == best for each in found],
    }


def _numbers(found: list[Interval | None]) -> list[Json]:
    """Return mean and half the interval's width by policy; null: unknown."""
    return [
        None if each is None else [rounded(each.mean), rounded(0.0 if each.high is None else each.high - each.mean)]
        for each in found
    ]


def _table(
    whole: Whole,
    rows: dict[str, pl.DataFrame],
    known: list[Compared],
    found: dict[str, list[Interval | None]],
) -> Table:
    """Return a row for each policy: finished apps, and the mean of every metric over seeds."""
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
        *(Column(label=each.label, kind=each.kind, digits=each.digits, hint=each.hint) for each in known),
    ]
    return kept_columns(Table(title=title, columns=columns, rows=listed, unit=whole.time_unit))
