"""Part 2, policies: the answer by goal, the main metrics of every policy with intervals, fairness against mean JCT."""

from __future__ import annotations

import html
from typing import Final

import polars as pl

from eunomia.model.shapes import value
from eunomia_testbed.evidence.draws import DrawKind
from eunomia_testbed.evidence.goals import MEAN_JCT, Goal
from eunomia_testbed.evidence.intervals import Estimate
from eunomia_testbed.evidence.judging import Answers, GoalAnswer
from eunomia_testbed.evidence.wording import difference, lines_of, method
from eunomia_testbed.report.part import Column, Json, Kind, Part, Table, kept_columns, rounded
from eunomia_testbed.report.view import Whole
from eunomia_testbed.report.words import RHO_NAMES, count
from eunomia_testbed.results.columns import Better, ColumnSpec, declared
from eunomia_testbed.results.figures import all_of
from eunomia_testbed.results.summary import Summary


@value
class Compared:
    """A column of the summary on the page, as declared; ``drawn``: shown as bars, otherwise only in the table."""

    name: str
    label: str
    kind: Kind
    digits: int
    better: Better | None
    hint: str
    drawn: bool


FAST: Final = MEAN_JCT.figure
DRAWN: Final = ("jct_mean_seconds", "jct_p99_seconds", "makespan_seconds", "rho_worst", "rho_unfair_share",
                "slots_in_use_share")  # fmt: skip
"""Metrics that the page compares as bars, in the order of the page."""
LISTED: Final = ("jct_median_seconds", "jct_p95_seconds", "rho_mean", "rho_jain", "queue_length_mean", "wait_seconds",
                 "restarts", "migrations", "resizes", "faults", "fallback_round")  # fmt: skip
"""Further metrics that only the table shows."""
_DIGITS: Final = {"rho_worst": 2, "rho_mean": 2, "rho_jain": 3, "queue_length_mean": 1}


def compared(whole: Whole) -> list[Compared]:
    """Return the columns with labels by which the page compares policies; those of plugins come last."""
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
    named = f"{label}{_of_draws(whole)}" if name == "rho_worst" else label
    return Compared(
        name=name,
        label=named.replace("ρ", RHO_NAMES[whole.rho_kind]),
        kind=kind,
        digits=1 if kind == "percent" else _DIGITS.get(name, 0 if name in (*DRAWN, *LISTED) else 3),
        better=better,
        hint=hint,
        drawn=drawn,
    )


def _of_draws(whole: Whole) -> str:
    """Return as text which runs a worst ρ is from: a single seed, this trace, or the mean over seeds or draws."""
    if whole.evidence.draws.kind is DrawKind.RESAMPLES:
        return ", this trace"
    if whole.evidence.draws.kind in (DrawKind.WINDOWS, DrawKind.TRACES):
        return f", mean of {whole.evidence.draws.kind.value}"
    seeds = whole.summaries["seed"].unique()
    return ", mean of seeds" if seeds.len() > 1 else f", seed {seeds[0]}"


def policies(whole: Whole) -> Part | None:
    """Make the page's part that compares policies; None: the run has a single policy."""
    if len(whole.policies) < 2:
        return None
    rows = {policy: whole.summaries.filter(pl.col("policy") == policy) for policy in whole.policies}
    measured = [each for each in compared(whole) if whole.summaries[each.name].null_count() < whole.summaries.height]
    found = {each.name: [whole.evidence.figure(policy, each.name) for policy in whole.policies] for each in measured}
    known = [each for each in measured if any(found[each.name])]
    kinds = _kinds(whole)
    return Part(
        name="policies",
        title="Policies",
        question="Which policy, for which goal, at what price?",
        html=_sentences(whole),
        data={
            "metrics": [_bars(each, found[each.name]) for each in known if each.drawn],
            "unit": whole.time_unit,
            "scatter": {"times": _numbers(found[FAST]), "kinds": kinds} if FAST in found and kinds else None,
        },
        tables=[*_prices(whole), *_fairness(whole), _table(whole, rows, known, found)],
    )


def _kinds(whole: Whole) -> list[Json]:
    """Return by kind of ρ (first the run's own) each policy's 90th percentile, and the Pareto front with mean JCT."""
    found = []
    for kind in sorted(RHO_NAMES, key=lambda each: each != whole.rho_kind):
        figures = [whole.evidence.figure(policy, f"rho_{kind}_p90") for policy in whole.policies]
        if any(figures):
            fronts = [answers.fronts.get(kind, ()) for answers in whole.answers.values()]
            label = RHO_NAMES[kind]
            facts = {"label": label, "judges": kind == whole.rho_kind, "rows": _numbers(figures), "frontiers": fronts}
            found.append(facts)
    return found


def _fairness(whole: Whole) -> list[Table]:
    """Return a table of ρ by kind and policy, with membership in the Pareto front; empty: no ρ is known."""
    fronts = [answers.fronts for answers in whole.answers.values()]
    rows: list[list[Json]] = []
    for kind, label in RHO_NAMES.items():
        for policy in whole.policies:
            found = [
                whole.evidence.figure(policy, f"rho_{kind}_{way}") for way in ("p90", "p99", "worst", "above_1_share")
            ]
            if any(found):
                front = "yes" if any(policy in each.get(kind, ()) for each in fronts) else "no"
                figures = [None if each is None else rounded(each.value) for each in found]
                rows.append([label, policy, *figures, front if fronts else None])
    columns = [
        Column(label="kind"),
        Column(label="policy", kind="policy"),
        Column(label="90th percentile", kind="number", digits=2),
        Column(label="99th percentile", kind="number", digits=2),
        Column(label="worst", kind="number", digits=2),
        Column(label="part above 1", kind="percent"),
        Column(label="on the front", hint="no policy beats it in both mean JCT and the 90th percentile"),
    ]
    return [kept_columns(Table(title="Fairness by kind of ρ", columns=columns, rows=rows, folded=True))] if rows else []


def _sentences(whole: Whole) -> str:
    """Return the answer by goal as a list, for each load, and how the intervals were made."""
    draws, parts = whole.evidence.draws, []
    for load, answers in whole.answers.items():
        head = f"<p><strong>At {load:g} times the load</strong></p>" if len(whole.answers) > 1 else ""
        lines = "".join(
            f"<dt>{html.escape(line.label)}</dt><dd>{html.escape(line.text)}</dd>" for line in lines_of(answers, draws)
        )
        lines += f"<dt>Front</dt><dd>{html.escape(_front_sentence(answers))}</dd>" if answers.fronts else ""
        left = "".join(
            f"<p>{html.escape(each.policy)}: {each.finished:,} of {count(each.apps, 'app')} finished, "
            "and no goal compares it.</p>"
            for each in answers.unfinished
        )
        parts.append(f'{head}<dl class="goals">{lines}</dl>{left}')
    return f'{"".join(parts)}<p class="asks">{html.escape(method(draws))}</p>' if parts else ""


def _front_sentence(answers: Answers) -> str:
    """Return a sentence with the policies on the Pareto front of mean JCT and 90th percentile of ρ, by kind of ρ."""
    by_front: dict[tuple[str, ...], list[str]] = {}
    for kind, front in answers.fronts.items():
        by_front.setdefault(front, []).append(RHO_NAMES[kind])
    every = len(by_front) == 1 and len(answers.fronts) > 1
    parts = [
        f"{', '.join(front)} by {'every kind of ρ' if every else ' and '.join(kinds)}"
        for front, kinds in by_front.items()
    ]
    where = "" if any(each.shows_chance for each in answers.goals) else "in this run, "
    return f"{where}no other policy is better in both mean JCT and the 90th percentile of ρ: {'; '.join(parts)}"


def _prices(whole: Whole) -> list[Table]:
    """Return, by load, each policy's difference from the best policy of each goal: the price of choosing it."""
    return [_price_table(load, answers, len(whole.answers) > 1) for load, answers in whole.answers.items()]


def _price_table(load: float, answers: Answers, several: bool) -> Table:
    asked = [*answers.goals, *(found[0] for found in answers.fairness.values())]
    policies_shown = list(dict.fromkeys(policy for each in asked for policy in each.figures))
    title = (
        f"The price by goal, at {load:g} times the load" if several else "The price by goal: against the best of each"
    )
    return Table(
        title=title,
        columns=[Column(label="policy", kind="policy"), *(Column(label=_headed(each.goal)) for each in asked)],
        rows=[[policy, *(_price(each, policy) for each in asked)] for policy in policies_shown],
    )


def _headed(goal: Goal) -> str:
    """Return the heading of a goal's column; for a fairness goal, it includes the kind of ρ."""
    kind = next((kind for kind in RHO_NAMES if f"_{kind}_" in goal.figure), None)
    return goal.label if kind is None else f"Fairest, {RHO_NAMES[kind]}"


def _price(answer: GoalAnswer, policy: str) -> str:
    if policy not in answer.figures:
        return "not known"
    if policy in answer.best and not answer.shows_chance:
        return "best in this run"
    if policy in answer.best:
        return "best" if answer.decided or len(answer.best) == 1 else "among the best"
    found = answer.against.get(policy)
    return "not known" if found is None else difference(found, answer.goal)


def _bars(metric: Compared, found: list[Estimate | None]) -> Json:
    means = [each.value for each in found if each is not None]
    best = None if metric.better is None else min(means) if metric.better == "low" else max(means)
    return {
        "label": metric.label,
        "kind": metric.kind,
        "digits": metric.digits,
        "better": metric.better,
        "rows": _numbers(found),
        "best": [each is not None and each.known and each.value == best for each in found],
    }


def _numbers(found: list[Estimate | None]) -> list[Json]:
    """Return value, lower and upper end for each policy; null: unknown, or no interval."""
    return [None if each is None else [rounded(each.value), rounded(each.low), rounded(each.high)] for each in found]


def _table(
    whole: Whole,
    rows: dict[str, pl.DataFrame],
    known: list[Compared],
    found: dict[str, list[Estimate | None]],
) -> Table:
    """Return a row for each policy: the number of finished apps, and the mean of every metric over seeds."""
    listed: list[list[Json]] = []
    for at, policy in enumerate(whole.policies):
        mine = rows[policy]
        means = [each.value if (each := found[metric.name][at]) is not None else None for metric in known]
        done = f"{int(mine['apps_finished'].sum())} of {int(mine['apps'].sum())}"
        listed.append([policy, mine.height, done, *(rounded(mean) for mean in means)])
    most = max(int(mine.height) for mine in rows.values())
    title = f"All policies, means over {count(most, 'seed')}" if most > 1 else "All policies"
    columns = [
        Column(label="policy", kind="policy"),
        Column(label="seeds", kind="number"),
        Column(label="finished", kind="text"),
        *(Column(label=each.label, kind=each.kind, digits=each.digits, hint=each.hint) for each in known),
    ]
    return kept_columns(Table(title=title, columns=columns, rows=listed, unit=whole.time_unit))
