"""Part 7, searches: metric curves by trial with rungs and pauses, and the best so far against slot time."""

from __future__ import annotations

import bisect
import html
import json
from collections import defaultdict
from typing import NamedTuple

import polars as pl

from eunomia_testbed.report.part import Column, Json, Part, Table, kept_columns, rounded, rounded_all
from eunomia_testbed.report.thin import thin
from eunomia_testbed.report.view import View
from eunomia_testbed.results.run_data import RunData

MOST_POINTS, MOST_CURVES, MOST_TRIALS, MOST_PANELS, MOST_TAGS = 120, 400, 2_000, 60, 8


class Search(NamedTuple):
    """The metric of a search and its direction."""

    app: str
    metric: str
    mode: str
    max_iterations: int | None = None


def searches(view: View) -> Part | None:
    """Make the page's part on searches; None: no metrics were logged."""
    run = view.run
    if run.metrics.is_empty():
        return None
    tags: dict[str, list[str]] = defaultdict(list)
    for app, tag in run.metrics.select("app", "tag").unique().sort("app", "tag").iter_rows():
        tags[str(app)].append(str(tag))
    every = _searches(run)
    unlogged = [search for search in every if search.metric not in tags[search.app]]
    found = [search for search in every if search.metric in tags[search.app]]
    slot_time = _SlotTime(run)
    found = found[: view.most(MOST_PANELS)]
    most = max(int(MOST_CURVES * view.share) // max(len(found), 1), 1)
    return Part(
        name="searches",
        title="Searches",
        question="Did stopping early pay off?",
        html=_unlogged(unlogged[: view.most(MOST_PANELS)], tags),
        data={"panels": [_panel(run, search, slot_time, most) for search in found]} if found else None,
        tables=_tables(view, every[: view.most(MOST_PANELS)]),
    )


def _tables(view: View, searches: list[Search]) -> list[Table]:
    made = [_gains(view.run, searches), _trials(view.run, view.most(MOST_TRIALS))]
    return [each for each in made if each.rows]


def _searches(run: RunData) -> list[Search]:
    """Return the run's searches; for other apps, one by the most logged tag, maximised only if it is an accuracy."""
    columns = run.searches.sort("app").select("app", "metric", "mode", "max_iterations")
    said = [Search(str(app), str(metric), str(mode), most) for app, metric, mode, most in columns.iter_rows()]
    unsaid = run.metrics.filter(~pl.col("app").is_in([search.app for search in said]))
    counted = unsaid.group_by("app", "tag").len().sort("app", "len", "tag", descending=[False, True, False])
    guessed = [
        Search(str(app), str(tag), "max" if "acc" in str(tag).lower() else "min")
        for app, tag in counted.unique("app", keep="first", maintain_order=True).select("app", "tag").iter_rows()
    ]
    return sorted(said + guessed, key=lambda search: search.app)


def _unlogged(searches: list[Search], tags: dict[str, list[str]]) -> str:
    """Return a paragraph for each search whose metric no trial logged."""
    said = []
    for app, metric, *_ in searches:
        known = tags.get(app, [])
        more = f" and {len(known) - MOST_TAGS:,} others" if len(known) > MOST_TAGS else ""
        logged = f"they logged {', '.join(known[:MOST_TAGS])}{more}" if known else "they logged nothing"
        said.append(f'{app}: no trial logged the metric "{metric}"; {logged}.')
    return "".join(f"<p>{html.escape(text)}</p>" for text in said)


def _panel(run: RunData, search: Search, slot_time: _SlotTime, most: int) -> Json:
    """Return the data of one app: curves, rungs, and the best value by slot time."""
    logged = run.metrics.filter((pl.col("app") == search.app) & (pl.col("tag") == search.metric))
    logged = logged.sort("time_seconds", "job", "step", nulls_last=True)
    trials = {str(row["job"]): row for row in run.trials.filter(pl.col("app") == search.app).iter_rows(named=True)}
    rungs = run.rungs.filter(pl.col("app") == search.app).sort("job", "rung")
    jobs = sorted(logged["job"].unique().to_list(), key=lambda job: (not trials.get(job, {}).get("best"), job))[:most]
    return {
        "app": search.app,
        "metric": search.metric,
        "mode": search.mode,
        "curves": [_curve(run, logged.filter(pl.col("job") == job), job, trials.get(job, {})) for job in jobs],
        "rungs": [
            rounded_all(row)
            for row in rungs.select("job", "rung", "iterations", "time_seconds", "metric", "verdict").iter_rows()
        ],
        "best": _best_so_far(logged, search, slot_time),
    }


def _curve(run: RunData, logged: pl.DataFrame, job: str, trial: dict[str, Json]) -> Json:
    """Return points (seconds, step, value, 1 after a pause) of a trial, with its description."""
    starts = run.segments.filter((pl.col("job") == job) & (pl.col("activity") == "start"))["start_seconds"]
    moments = sorted(set(starts.to_list()))
    points: list[tuple[Json, ...]] = []
    seen = -1
    for time, step, value in logged.sort("step").select("time_seconds", "step", "value").iter_rows():
        begun = bisect.bisect_right(moments, time) if time is not None else seen
        points.append((rounded(time, 3), step, rounded(value, 5), int(bool(points) and begun != seen)))
        seen = begun
    return {
        "job": job,
        "best": bool(trial.get("best")),
        "state": trial.get("state"),
        "params": params_in_words(trial.get("params")),
        "points": thin(points, at_most=MOST_POINTS, value=2),
    }


def _best_so_far(logged: pl.DataFrame, search: Search, slot_time: _SlotTime) -> list[Json]:
    """Return points (slot-seconds of the app, best value, job) at each improvement of the best value."""
    better = max if search.mode == "max" else min
    best: float | None = None
    points: list[Json] = []
    spent = 0.0
    for time, given, job, value in logged.select("time_seconds", "slot_seconds", "job", "value").iter_rows():
        if value is None or time is None:
            continue
        spent = max(spent, given if given is not None else slot_time.at(search.app, time))
        if best is None or (value != best and better(value, best) == value):
            best = value
            points.append([rounded(spent, 2), rounded(value, 5), job])
    if points:
        points.append([rounded(max(spent, slot_time.total(search.app)), 2), *points[-1][1:]])
    return points


class _SlotTime:
    """The slot time of each app up to any time, computed from the leases."""

    def __init__(self, run: RunData) -> None:
        self._leases: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for app, start, end in run.leases.select("app", "start_seconds", "end_seconds").iter_rows():
            self._leases[app].append((start, float("inf") if end is None else end))

    def at(self, app: str, moment: float) -> float:
        """Return the slot-seconds that an app held until a time."""
        return sum(max(0.0, min(end, moment) - start) for start, end in self._leases[app])

    def total(self, app: str) -> float:
        """Return the slot-seconds that an app held in total."""
        return sum(end - start for start, end in self._leases[app] if end != float("inf"))


def params_in_words(params: object) -> str:
    """Return a JSON object as ``lr 0.07, width 64``; other text is returned unchanged."""
    try:
        found = json.loads(str(params)) if params else {}
    except ValueError:
        return str(params)
    if not isinstance(found, dict):
        return str(params)
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in found.items()
    )


def _gains(run: RunData, found: list[Search]) -> Table:
    """Return each search's iterations, compared with those of training every trial to the end.

    The app file states that end. Without one, it is the last iteration of the finished trials; if none finished, it is
    unknown.
    """
    rows: list[list[Json]] = []
    for search in found:
        trials = run.trials.filter(pl.col("app") == search.app)
        if trials.height < 2:
            continue
        done, furthest = trials["iterations"].sum(), trials.filter(pl.col("state") == "finished")["iterations"].max()
        end = furthest if search.max_iterations is None else search.max_iterations
        full = end * trials.height if isinstance(end, int) else 0
        top = next(iter(trials.filter(pl.col("best")).iter_rows(named=True)), {})
        states = trials["state"].to_list()
        facts: list[Json] = [search.app, trials.height, states.count("finished"), states.count("failed") or None, done]
        facts += [done / full if full else None, top.get("metric"), top.get("job"), params_in_words(top.get("params"))]
        rows.append([rounded(each) for each in facts])
    table = Table(
        title="What stopping early saved",
        columns=[
            Column(label="app", kind="app"),
            Column(label="trials", kind="number"),
            Column(label="to the end", kind="number", hint="trials that were trained to the end"),
            Column(label="failed", kind="number", hint="trials that failed; their iterations count as well"),
            Column(label="iterations", kind="number"),
            Column(label="of all to the end", kind="percent", hint="iterations done, of those of training every trial"),
            Column(label="best", kind="number", digits=4),
            Column(label="in trial", kind="code"),
            Column(label="with", kind="code"),
        ],
        rows=rows,
        app=0,
    )
    return kept_columns(table)


def _trials(run: RunData, most: int) -> Table:
    columns = run.trials.select("app", "job", "params", "state", "rung", "iterations", "metric", "best")
    rows = [
        [app, job, params_in_words(params), state, rung, iterations, rounded(metric), best]
        for app, job, params, state, rung, iterations, metric, best in columns.head(most).iter_rows()
    ]
    return Table(
        title=f"Trials, {run.trials.height}",
        columns=[
            Column(label="app", kind="app"),
            Column(label="trial", kind="code"),
            Column(label="parameters", kind="code"),
            Column(label="state"),
            Column(label="rung", kind="number"),
            Column(label="iterations", kind="number"),
            Column(label="best value", kind="number", digits=4),
            Column(label="best of app", kind="flag"),
        ],
        rows=rows,
        app=0,
        folded=True,
    )
