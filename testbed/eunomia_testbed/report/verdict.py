"""Part 1, the verdict: a sentence for each question, and a row for each app."""

from __future__ import annotations

import dataclasses
import html
from typing import Literal

import polars as pl

from eunomia_testbed.report.part import Column, Json, Part, Table, rounded
from eunomia_testbed.report.waiting import waiting_by_app
from eunomia_testbed.report.words import count, duration, percent
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import OVERHEADS, UNFAIR_RHO, Summary, apps_or_jobs, summary_of

_MARKS = {"good": "✓", "poor": "!", "bad": "✕", "plain": "·"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """An answer in a few words, and what it rests on."""

    mark: Literal["good", "poor", "bad", "plain"]
    question: str
    answer: str
    because: str


def verdict(run: RunData) -> Part | None:
    """The part, or None for a run without apps and jobs."""
    if not run.runs():
        return None
    summary = summary_of(run, *run.runs()[0])
    statements = [_finished(run, summary), _fair(run, summary), _busy(summary), _cost(summary), _trust(run, summary)]
    return Part(
        name="verdict",
        title="Verdict",
        question="Is this run good, and can it be trusted?",
        html='<ul class="statements">' + "".join(_markup(each) for each in statements if each is not None) + "</ul>",
        tables=[_app_table(run)],
    )


def _finished(run: RunData, summary: Summary) -> Statement:
    done = summary.apps_finished == summary.apps
    interrupted = run.facts is not None and run.facts.ended == "interrupted"
    answer = f"All {summary.apps} apps finished" if done else f"{summary.apps_finished} of {summary.apps} apps finished"
    because = [f"the last after {duration(summary.makespan_seconds)}"] if summary.makespan_seconds is not None else []
    if summary.jct_mean_seconds is not None:
        because.append(
            f"JCT {duration(summary.jct_mean_seconds)} on average, "
            f"{duration(summary.jct_p99_seconds)} at the 99th percentile"
        )
    if interrupted:
        because.append("the run was interrupted")
    mark: Literal["good", "poor", "bad"] = "good" if done else "poor" if interrupted else "bad"
    return Statement(mark=mark, question="Did all finish?", answer=answer, because=_sentence(because))


def _fair(run: RunData, summary: Summary) -> Statement | None:
    if summary.rho_worst is None or summary.rho_above_1_share is None:
        return None
    app = summary.rho_worst_app or ""
    above = round(summary.rho_above_1_share * apps_or_jobs(run)["rho"].drop_nulls().len())
    because = [
        f"{above or 'none'} of {count(summary.apps, 'app')} above 1, which is slower than on an equal share of its own"
    ]
    waited = waiting_by_app(run).get(app)
    if waited is not None:
        because.append(
            f"the jobs of {app} waited {duration(waited.seconds)} in all, "
            f"{percent(waited.reason_seconds / waited.seconds)} of it because {waited.words}"
        )
    mark: Literal["good", "poor", "bad"] = (
        "good" if summary.rho_worst <= UNFAIR_RHO else "poor" if summary.rho_worst <= 1.5 else "bad"
    )
    answer = f"Worst ρ {summary.rho_worst:.2f}, {app}"
    return Statement(mark=mark, question="Was it fair?", answer=answer, because=_sentence(because))


def _busy(summary: Summary) -> Statement | None:
    if summary.slots_in_use_share is None:
        return None
    because = [f"{count(summary.slots or 0, 'slot')}, {duration(summary.slot_seconds)} of slot time held"]
    if summary.run_share is not None:
        because.append(f"of that {percent(summary.run_share)} ran and {percent(summary.idle_share)} stood idle")
    return Statement(
        mark="good" if summary.slots_in_use_share >= 0.9 else "poor" if summary.slots_in_use_share >= 0.6 else "bad",
        question="Were the slots busy?",
        answer=f"Slots in use {percent(summary.slots_in_use_share)}",
        because=_sentence(because),
    )


def _cost(summary: Summary) -> Statement | None:
    if summary.run_share is None:
        return None
    named = [(name, getattr(summary, f"{name}_share") or 0.0) for name in OVERHEADS if name != "idle"]
    cost = sum(share for _, share in named)
    counted = [
        (summary.suspensions, "suspension", ""),
        (summary.restarts, "restart", ""),
        (summary.iterations_lost, "iteration", " done twice"),
    ]
    because = [
        ", ".join(f"{name} {percent(share)}" for name, share in named) + " of the slot time held",
        ", ".join(count(number, noun) + after for number, noun, after in counted if number is not None),
    ]
    return Statement(
        mark="good" if cost <= 0.1 and not summary.iterations_lost else "poor",
        question="What did sharing cost?",
        answer=f"{percent(cost)} of slot time",
        because=_sentence(because),
    )


def _trust(run: RunData, summary: Summary) -> Statement | None:
    if run.leases.is_empty():
        return None
    twice = f"{summary.slots_held_twice or 'no'} slot{'s' if summary.slots_held_twice > 1 else ''} held twice"
    faults = count(summary.faults, "fault")
    because = [f"{count(run.leases.height, 'lease')} checked over {count(summary.rounds, 'round')}"]
    return Statement(
        mark="bad" if summary.slots_held_twice else "poor" if summary.faults else "good",
        question="Can it be trusted?",
        answer=f"{twice}, {faults}".capitalize(),
        because=_sentence(because),
    )


def _sentence(clauses: list[str]) -> str:
    text = "; ".join(filter(None, clauses))
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _markup(statement: Statement) -> str:
    return (
        f'<li class="{statement.mark}"><p class="asks">{html.escape(statement.question)}</p>'
        f'<p class="answer"><span class="mark" aria-hidden="true">{_MARKS[statement.mark]}</span>'
        f"{html.escape(statement.answer)}</p><p>{html.escape(statement.because)}</p></li>"
    )


def _app_table(run: RunData) -> Table:
    """A row for each app, as the demo prints it at its end."""
    waited = waiting_by_app(run)
    best = {str(row["app"]): row for row in run.trials.filter(pl.col("best")).iter_rows(named=True)}
    by_app = run.jobs.group_by("app").agg(pl.col("restarts").sum(), pl.col("iterations_lost").sum(), pl.len())
    jobs = {str(row["app"]): row for row in by_app.iter_rows(named=True)}
    rows: list[list[Json]] = []
    for row in apps_or_jobs(run).sort("app").iter_rows(named=True):
        app, mine, top = row["app"], jobs.get(row["app"], {}), best.get(row["app"], {})
        waiting = waited.get(app)
        facts = [app, row.get("tuner"), row["state"], row["rho"], row["jct_seconds"], row["slot_seconds"]]
        facts += [waiting.seconds if waiting else None, mine.get("len"), top.get("metric"), top.get("job")]
        rows.append([rounded(each) for each in [*facts, mine.get("restarts"), mine.get("iterations_lost")]])
    columns = [
        Column(label="app", kind="app"),
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
    kept = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    return Table(
        title="Apps", columns=[columns[at] for at in kept], rows=[[row[at] for at in kept] for row in rows], app=0
    )
