"""Part 1, the verdict: an answer to each question in a sentence, and a row for each app."""

from __future__ import annotations

import html
from collections.abc import Set
from typing import Literal

import polars as pl

from eunomia.model.shapes import value
from eunomia_testbed.evidence.intervals import Estimate
from eunomia_testbed.evidence.wording import lines_of, method
from eunomia_testbed.report.company import lone_apps
from eunomia_testbed.report.curves import busy_while_waiting
from eunomia_testbed.report.part import Column, Json, Part, Table, kept_columns, rounded
from eunomia_testbed.report.sums import highest
from eunomia_testbed.report.view import View
from eunomia_testbed.report.waiting import waiting_by_app
from eunomia_testbed.report.words import RHO_NAMES, count, duration, percent
from eunomia_testbed.results.assumptions import assumption_sentences
from eunomia_testbed.results.counting import apps_or_jobs, rho_column
from eunomia_testbed.results.gpu_types import AppOnTypes, apps_by_type
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import OVERHEADS, UNFAIR_RHO, Summary

FEW_APPS, MOST_APPS = 16, 600
"""With at most ``FEW_APPS`` apps the table is expanded, by name; with more than ``MOST_APPS``, it has only the
worst."""
_OWN = "it comes from starts, speed-up below linear and waits for its own trials"
_MARKS = {"good": "✓", "poor": "!", "bad": "✕", "plain": "·"}


Mark = Literal["good", "poor", "bad", "plain"]


@value
class Statement:
    """A short answer, and the figures that support it."""

    mark: Mark
    question: str
    answer: str
    because: str


def verdict(view: View) -> Part | None:
    """Make the page's part with the verdict; None: the run has neither apps nor jobs."""
    run, summary = view.run, view.summary
    if not summary.apps:
        return None
    statements = [_finished(run, summary), _fair(view), _busy(view), _cost(view), _trust(run, summary)]
    statements.append(_which(view))
    return Part(
        name="verdict",
        title="Verdict",
        question="Is this run good, and can it be trusted?",
        html=_assumed(run)
        + '<ul class="statements">'
        + "".join(_markup(each) for each in statements if each is not None)
        + "</ul>",
        tables=[_app_table(view)],
    )


def _assumed(run: RunData) -> str:
    """Return a paragraph on assumed speeds; empty: none were assumed."""
    lines = [] if run.facts is None else assumption_sentences(run.facts.assumptions)
    return f'<p class="assumed"><strong>{html.escape(" ".join(lines))}</strong></p>' if lines else ""


def _finished(run: RunData, summary: Summary) -> Statement:
    done = summary.apps_finished == summary.apps_that_fit
    interrupted = run.facts is not None and run.facts.ended == "interrupted"
    goes_on = run.facts is not None and run.facts.kind == "serve" and run.facts.ended is None
    one = summary.apps_finished == summary.apps_that_fit == 1
    answer = "The app finished" if one else f"{_share(summary.apps_finished, summary.apps_that_fit)} apps finished"
    because = [f"the last after {duration(summary.makespan_seconds)}"] if summary.makespan_seconds is not None else []
    if summary.jct_mean_seconds is not None:
        because.append(
            f"JCT {duration(summary.jct_mean_seconds)} on average, "
            f"{duration(summary.jct_p99_seconds)} at the 99th percentile"
        )
    if interrupted:
        because.append("the run was interrupted")
    if goes_on:
        because.append("the arbiter still ran when this page was written")
    if summary.apps_left_out:
        because.append(
            f"{count(summary.apps_left_out, 'app')} can never run on this cluster, and no policy counts them"
        )
    mark: Mark = "good" if done else "poor" if interrupted or goes_on else "bad"
    return Statement(mark=mark, question="Did all finish?", answer=answer, because=_sentence(because))


def _share(done: int, total: int) -> str:
    """Return a count such as ``All 4`` or ``3 of 4``."""
    return f"All {total:,}" if done == total else f"{done:,} of {total:,}"


def _fair(view: View) -> Statement | None:
    """Return the answer on fairness, with the worst ρ among apps that were not alone; None: no ρ is known."""
    run, summary = view.run, view.summary
    if summary.rho_worst is None or summary.rho_above_1_share is None:
        return None
    lone = lone_apps(run)
    known = highest(apps_or_jobs(run).drop_nulls(rho_column(run)), rho_column(run), len(lone) + 1)
    ranked = [(str(app), float(rho)) for app, rho in known.select("app", rho_column(run)).iter_rows()]
    shared = next((each for each in ranked if each[0] not in lone), None)
    alone = next((each for each in ranked if each[0] in lone), None)
    app, rho = shared or (summary.rho_worst_app or "", summary.rho_worst)
    because = _about_rho(run, summary) + _about_app(view, app, lone)
    if shared is None:
        because.insert(0, f"the worst {RHO_NAMES[summary.rho_kind]} is {rho:.2f}, {_named(app)}{_own(rho)}")
    elif alone is not None:
        worst = f"the worst ρ of them {alone[1]:.2f}{_own(alone[1])}"
        because.append(f"no other app was there to share with over the life of {count(len(lone), 'app')}, {worst}")
    seed = f" (seed {view.seed})" if run.facts is not None and len(run.facts.seeds) > 1 else ""
    answer = f"Worst {RHO_NAMES[summary.rho_kind]} {rho:.2f}{seed}, {_named(app)}"
    return Statement(
        mark="plain" if shared is None else _fairness_mark(view, rho),
        question="Was it fair?",
        answer=f"No other app was there to share with{seed}" if shared is None else answer,
        because=_sentence(because),
    )


def _own(rho: float) -> str:
    """Return a text that explains why an app that was alone has a large ρ; empty: its ρ is not large."""
    return f": {_OWN}" if rho > 1.0 else ""


def _fairness_mark(view: View, worst: float) -> Mark:
    if _is_simulated(view.run):
        p90 = view.evidence.figure(view.policy, f"rho_{view.summary.rho_kind}_p90")
        return _shown_by(p90, good=unfair_above(view.run), bad=1.5)
    return "good" if worst <= unfair_above(view.run) else "poor" if worst <= 1.5 else "bad"


def _about_rho(run: RunData, summary: Summary) -> list[str]:
    """Return clauses on the ρ of all apps."""
    above = round((summary.rho_above_1_share or 0.0) * apps_or_jobs(run)[rho_column(run)].drop_nulls().len())
    slower = f"{above:,}" if above else "none"
    because = [
        f"{slower} of {count(summary.apps, 'app')} above 1; "
        "ρ is finish time over that on an equal share of one's own, at most 1 is fair"
    ]
    because += _by_kind(summary)
    if summary.apps_slower_alone and summary.rho_kind == "themis":
        because.append(
            f"{count(summary.apps_slower_alone, 'app')} would have a large ρ even alone: T_cluster assumes linear "
            "speed-up, and --rho contention does not"
        )
    return because


def _about_app(view: View, app: str, lone: Set[str]) -> list[str]:
    """Return clauses on why one app was slow."""
    because = []
    waited = waiting_by_app(view.waits, [app], lone=lone).get(app)
    if waited is not None:
        because.append(
            f"the jobs of {_named(app)} waited {duration(waited.seconds)} in all, "
            f"{percent(waited.reason_seconds / waited.seconds)} of it because {waited.words}"
        )
    if (slow := _slow_by_type(view.run, app)) is not None:
        because.append(f"{_named(app)} is slow because of its GPU type: {duration(slow.lost_seconds)} lost {slow.why}")
    return because


def _by_kind(summary: Summary) -> list[str]:
    """Return a clause with the values of every known kind of ρ; empty: only one kind is known."""
    figures = []
    for kind, name in RHO_NAMES.items():
        found = [summary.rho_by_kind.get(f"rho_{kind}_{way}") for way in ("p90", "p99", "worst", "above_1_share")]
        p90, p99, worst, above = found
        if p90 is not None and p99 is not None and worst is not None:
            figures.append(f"{name} {p90:.2f}, {p99:.2f}, {worst:.2f}, {percent(above)}")
    return [f"90th, 99th percentile, worst and part above 1: {'; '.join(figures)}"] if len(figures) > 1 else []


def _slow_by_type(run: RunData, app: str) -> AppOnTypes | None:
    """Return the speeds of an app that is slow because of its GPU types; None: it is not, or they are unknown."""
    found = next((each for each in apps_by_type(run) or () if each.app == app), None)
    return found if found is not None and found.slow else None


def _is_simulated(run: RunData) -> bool:
    """Return whether the run is a simulation; its marks need intervals, since one run is a single random draw."""
    return run.facts is not None and run.facts.clock == "virtual"


def _shown_by(found: Estimate | None, *, good: float, bad: float) -> Mark:
    """Return the mark that an interval supports, for a figure where lower is better; ``plain``: it supports none."""
    if found is None or found.low is None or found.high is None:
        return "plain"
    return "good" if found.high <= good else "bad" if found.low > bad else "poor" if found.low > good else "plain"


def _named(app: str) -> str:
    """Return the app's name, preceded by "app" if it is a number."""
    return f"app {app}" if app.isdigit() else app


def unfair_above(run: RunData) -> float:
    """Return the ρ above which the run counts an app as treated unfairly."""
    return UNFAIR_RHO if run.facts is None else run.facts.unfair_above


def _busy(view: View) -> Statement | None:
    summary = view.summary
    if summary.slots_in_use_share is None:
        return None
    because = [f"{count(summary.slots or 0, 'slot')}, {duration(summary.slot_seconds)} of slot time held"]
    if summary.run_share is not None:
        idle = f" and {percent(summary.idle_share)} stood idle" if summary.idle_share is not None else ""
        because.append(f"of that {percent(summary.run_share)} ran{idle}")
    pressed = busy_while_waiting(view.run, summary.slots)
    if pressed is not None:
        until = (
            "until the last app finished" if summary.apps_finished == summary.apps_that_fit else "until the last event"
        )
        because.append(f"{until} {percent(summary.slots_in_use_share)} were held")
    elif not _is_simulated(view.run):
        because.append("no job is known to have waited for a slot")
    mark: Mark = "plain"
    if pressed is not None and not _is_simulated(view.run):
        mark = "good" if pressed >= 0.9 else "poor" if pressed >= 0.6 else "bad"
    return Statement(
        mark=mark,
        question="Were the slots busy?",
        answer=f"Slots held {percent(summary.slots_in_use_share)}"
        if pressed is None
        else f"{percent(pressed)} busy while jobs waited",
        because=_sentence(because),
    )


def _cost(view: View) -> Statement | None:
    run, summary = view.run, view.summary
    counted = [
        (summary.suspensions, "suspension", ""),
        (summary.restarts, "restart", ""),
        (_resizes(summary), "resize", ""),
        (summary.probes or None, "probe", ""),
        (summary.iterations_lost, "iteration", " done twice"),
    ]
    changes = ", ".join(count(number, noun) + after for number, noun, after in counted if number is not None)
    if run.facts is not None and run.facts.costs_given is False:
        return _not_modelled(changes)
    if summary.run_share is None or summary.start_share is None:
        return _uncounted(run, summary, changes)
    named = [(name, getattr(summary, f"{name}_share") or 0.0) for name in OVERHEADS if name != "idle"]
    cost = sum(share for _, share in named)
    if _unknown_and_free(run, cost):
        return _not_modelled(changes)
    because = [", ".join(f"{name} {percent(share)}" for name, share in named) + " of the slot time held", changes]
    because += _free_resizes(run, summary)
    return Statement(
        mark="plain" if _is_simulated(run) else "good" if cost <= 0.1 and not summary.iterations_lost else "poor",
        question="What did sharing cost?",
        answer=f"{percent(cost)} of slot time",
        because=_sentence(because),
    )


def _resizes(summary: Summary) -> int | None:
    """Return how often running gangs grew or shrank; None: never, or unknown."""
    return summary.resizes or None


def _free_resizes(run: RunData, summary: Summary) -> list[str]:
    resizes = _resizes(summary)
    if run.facts is None or not run.facts.resizes_free or resizes is None:
        return []
    return [f"{count(resizes, 'resize')} took no time: --cost pause=30s gives each a time"]


def _unknown_and_free(run: RunData, cost: float) -> bool:
    """Return whether no change took time in a simulation whose costs were not given."""
    return run.facts is not None and run.facts.clock == "virtual" and run.facts.costs_given is None and cost == 0.0


def _not_modelled(changes: str) -> Statement:
    return Statement(
        mark="plain",
        question="What did sharing cost?",
        answer="Not modelled",
        because=_sentence(
            ["every start, save and restore took no time: --cost start=30s and others give them some", changes]
        ),
    )


def _uncounted(run: RunData, summary: Summary, changes: str) -> Statement | None:
    """Return the answer on the cost of changes from their number, for a run without slot times; None: unknown."""
    if summary.restarts is None:
        return None
    if not summary.restarts and not summary.suspensions and not summary.iterations_lost:
        return Statement(
            mark="plain" if _is_simulated(run) else "good",
            question="What did sharing cost?",
            answer="No job was interrupted",
            because=_sentence([changes]),
        )
    answer = count(summary.restarts, "restart")
    return Statement(
        mark="plain",
        question="What did sharing cost?",
        answer=answer.capitalize(),
        because=_sentence([changes, "their time was not counted apart"]),
    )


def _trust(run: RunData, summary: Summary) -> Statement | None:
    if run.leases.is_empty():
        return None
    twice = f"{count(summary.slots_held_twice, 'slot') if summary.slots_held_twice else 'no slot'} held twice"
    faults = count(summary.faults, "fault")
    because = [f"{count(run.leases.height, 'lease')} checked over {count(summary.rounds, 'round')}"]
    if summary.first_fault is not None:
        because.append(f"the first fault: {summary.first_fault}")
    if summary.fallback_round is not None:
        because.append("no figure of this run is the policy's alone")
        twice = f"the fallback decided from round {summary.fallback_round} on, {twice}"
    broken = summary.slots_held_twice or summary.fallback_round is not None
    return Statement(
        mark="bad" if broken else "poor" if summary.faults else "good",
        question="Can it be trusted?",
        answer=f"{twice}, {faults}".capitalize(),
        because=_sentence(because),
    )


def _which(view: View) -> Statement | None:
    """Return the answers by goal, marked if intervals show that this view's policy is best; None: a single policy."""
    if view.answers is None:
        return None
    draws = view.evidence.draws
    lines = lines_of(view.answers, draws)
    mine = [each.goal.label for each in view.answers.goals if each.decided and view.policy in each.best]
    answer = f"{view.policy}: {', '.join(mine)[:1].lower()}{', '.join(mine)[1:]}" if mine else "It depends on the goal"
    if not draws.shows_chance:
        answer = "One run shows no difference from chance"
    by_goal = [f"{line.label}: {line.text}" for line in lines]
    return Statement(
        mark="good" if mine else "plain",
        question="Which policy?",
        answer=answer,
        because=_sentence([*by_goal, method(draws)]),
    )


def _sentence(clauses: list[str]) -> str:
    text = "; ".join(filter(None, clauses))
    return f"{text[:1].upper()}{text[1:]}".removesuffix(".") + "." if text else ""


def _markup(statement: Statement) -> str:
    return (
        f'<li class="{statement.mark}"><p class="asks">{html.escape(statement.question)}</p>'
        f'<p class="answer"><span class="mark" aria-hidden="true">{_MARKS[statement.mark]}</span>'
        f"{html.escape(statement.answer)}</p><p>{html.escape(statement.because)}</p></li>"
    )


def _worst_first(judged: pl.DataFrame, kind: str, most: int) -> pl.DataFrame:
    """Return the apps with a known ρ, worst first, then the others by name, up to a limit."""
    known = highest(judged, kind, most)
    if known.height == most:
        return known
    unknown = judged.filter(pl.col(kind).is_null() | pl.col(kind).is_nan()).sort("app")
    return pl.concat([known, unknown.head(most - known.height)])


def _app_table(view: View) -> Table:
    """Return a row for each app, like the demo's final table; if there are too many, the apps with the worst ρ."""
    run, most = view.run, view.most(MOST_APPS)
    judged, kind = apps_or_jobs(run), rho_column(run)
    shown = judged.sort("app") if judged.height <= FEW_APPS else _worst_first(judged, kind, most)
    names = shown["app"].to_list()
    waited = waiting_by_app(view.waits, names)
    best = {str(row["app"]): row for row in run.trials.filter(pl.col("best")).iter_rows(named=True)}
    mine = run.jobs.filter(pl.col("app").is_in(names)) if judged.height > most else run.jobs
    by_app = mine.group_by("app").agg(pl.col("restarts").sum(), pl.col("iterations_lost").sum(), pl.len())
    jobs = {str(row["app"]): row for row in by_app.iter_rows(named=True)}
    rows: list[list[Json]] = []
    for row in shown.iter_rows(named=True):
        app, mine_jobs, top = row["app"], jobs.get(row["app"], {}), best.get(row["app"], {})
        waiting = waited.get(app)
        facts = [app, row.get("user"), row.get("tuner"), row["state"], row[kind], row["jct_seconds"]]
        facts += [row["slot_seconds"], waiting.seconds if waiting else None, mine_jobs.get("len")]
        facts += [top.get("metric"), top.get("job"), mine_jobs.get("restarts"), mine_jobs.get("iterations_lost")]
        rows.append([rounded(each) for each in facts])
    columns = [
        Column(label="app", kind="app"),
        Column(label="user"),
        Column(label="tuner"),
        Column(label="state"),
        Column(label="ρ", kind="number", digits=2, hint="finish-time fairness: above 1 is slower than on a share"),
        Column(label="JCT", kind="seconds", digits=1, hint="from arrival to finish"),
        Column(label="slot time", kind="seconds", digits=1),
        Column(label="waited", kind="seconds", digits=1, hint="its jobs' waiting added up, own pauses left out"),
        Column(label="jobs", kind="number"),
        Column(label="best", kind="number", digits=4, hint="best value of the metric that its tuner compares"),
        Column(label="in trial", kind="code"),
        Column(label="restarts", kind="number"),
        Column(label="done twice", kind="number", hint="iterations after the last checkpoint, done again"),
    ]
    title = "Apps" if judged.height <= most else f"Apps, the {len(rows)} with the worst ρ of {judged.height:,}"
    table = Table(title=title, columns=columns, rows=rows, app=0, folded=judged.height > FEW_APPS)
    return kept_columns(table)
