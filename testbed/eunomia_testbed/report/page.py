"""Assembles the page from its parts: one HTML file that contains data as JSON, styles and scripts."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

import polars as pl

from eunomia.model.shapes import value
from eunomia_testbed.report.cluster import cluster
from eunomia_testbed.report.decisions import decisions
from eunomia_testbed.report.failed_runs import failed_runs
from eunomia_testbed.report.failures import failures
from eunomia_testbed.report.fairness import fairness
from eunomia_testbed.report.gpu_types import gpu_types
from eunomia_testbed.report.part import Json, Part, Table
from eunomia_testbed.report.plugin_metrics import plugin_metrics
from eunomia_testbed.report.policies import policies
from eunomia_testbed.report.provenance import provenance
from eunomia_testbed.report.searches import searches
from eunomia_testbed.report.speed import speed
from eunomia_testbed.report.verdict import verdict
from eunomia_testbed.report.view import Whole, whole_of
from eunomia_testbed.report.who_held_what import who_held_what
from eunomia_testbed.report.words import count
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import Summary

PARTS: Final[Sequence[Callable[[Whole, float], Sequence[Part | None]]]] = (
    lambda whole, _: [failed_runs(whole)],
    lambda whole, _: [verdict(view) for view in whole.views],
    lambda whole, _: [failures(view) for view in whole.views],
    lambda whole, _: [policies(whole)],
    lambda whole, _: [plugin_metrics(whole)],
    lambda whole, until: [who_held_what(view, until, whole.groups) for view in whole.views],
    lambda whole, _: [fairness(view) for view in whole.views],
    lambda whole, _: [speed(view) for view in whole.views],
    lambda whole, _: [gpu_types(view) for view in whole.views],
    lambda whole, until: [cluster(view, until) for view in whole.views],
    lambda whole, _: [searches(view) for view in whole.views],
    lambda whole, _: [decisions(view) for view in whole.views],
    lambda whole, _: [provenance(whole.run)],
)
"""Functions that make the parts, in page order; each returns one part per shown run, or one for all runs.

A part is None if there is no data for it.
"""

SCRIPTS: Final = ("state.js", "format.js", "svg.js", "chart.js", "labels.js", "bars.js", "policy.js", "table.js",
                  "groups.js", "held.js", "heat.js", "policies.js", "fairness.js", "speed.js", "types.js", "cluster.js",
                  "searches.js", "decisions.js", "page.js")  # fmt: skip
"""The scripts, in the order in which they are concatenated."""

MOST_NAMES: Final = 2_000
COLOURED: Final = 18


@value
class Section:
    """A part of the page: one view for each run, or one view for all."""

    first: Part
    views: tuple[Part | None, ...]
    of_all: bool


def render(run: RunData, counted: Mapping[tuple[str, int], Summary] | None = None) -> str:
    """Return the page of a run of one or more policies, with one or more seeds.

    Args:
        run: tables of the run.
        counted: summaries by policy and seed, if they have been computed already.
    """
    whole = whole_of(run, counted)
    until = _until(whole)
    sections = list(_sections(whole, until))
    data = {
        "apps": _app_names(whole, sections),
        "appCount": whole.app_count,
        "span": [0.0, until],
        "clock": "time since the first arrival",
        "policies": list(whole.policies),
        "first": whole.first,
        "groups": whole.groups.to_plain(),
        "runs": [
            {"name": name, "policy": view.policy, "seed": view.seed}
            for name, view in zip(whole.names, whole.views, strict=True)
        ],
        "parts": {
            each.first.name: {"ofAll": each.of_all, "views": [_data(part) for part in each.views]} for each in sections
        },
    }
    return _TEMPLATE.format(
        title=html.escape(_title(run)),
        subtitle=html.escape(_subtitle(whole)),
        style=_asset("report.css"),
        links="".join(f'<a href="#{each.first.name}">{html.escape(each.first.title)}</a>' for each in sections),
        sections="\n".join(_section(each, whole.first) for each in sections) or "<p>This run left no data.</p>",
        data=embed(data),
        script="\n".join(_asset(name) for name in SCRIPTS),
    )


def write_report(
    folder: Path, run: RunData | None = None, counted: Mapping[tuple[str, int], Summary] | None = None
) -> Path:
    """Read a result folder, write its ``report.html``, and return the file's path.

    Args:
        folder: the result folder.
        run: tables of the run, if they have been read already.
        counted: summaries by policy and seed, if they have been computed already.

    Raises:
        InputError: there is no such folder, or a table in it does not have this version's columns.
    """
    return write_page(render(RunData.load(folder) if run is None else run, counted), folder)


def write_page(page: str, folder: Path) -> Path:
    """Write a page into a folder as ``report.html``, atomically by a rename, and return the file's path."""
    target = folder / "report.html"
    part = target.with_name(".report.html.part")
    part.write_text(page, encoding="utf-8")
    part.replace(target)
    return target


def embed(data: Json) -> str:
    """Return data as JSON for a script element, escaped so that it can neither close the element nor open a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sections(whole: Whole, until: float) -> Iterator[Section]:
    for make in PARTS:
        made = make(whole, until)
        first = next((part for part in made if part is not None), None)
        if first is not None:
            yield Section(first=first, views=tuple(made), of_all=len(made) == 1)


def _section(section: Section, first: int) -> str:
    part, shown = section.first, 0 if section.of_all else first
    return (
        f'<section id="{part.name}" aria-labelledby="{part.name}-title"><h2 id="{part.name}-title" tabindex="-1">'
        f'{html.escape(part.title)}</h2><p class="asks">{html.escape(part.question)}</p>'
        f"{''.join(_view(each, hidden=at != shown) for at, each in enumerate(section.views))}</section>"
    )


def _view(part: Part | None, *, hidden: bool) -> str:
    """Return a part of one run as HTML; the page shows one run at a time and hides the others."""
    inner = part.html if part is not None else '<p class="asks">This run left nothing for this part.</p>'
    marked = " hidden" if hidden else ""
    return f'<div class="view"{marked}>{inner}<div class="drawn"></div><div class="tables"></div></div>'


def _data(part: Part | None) -> Json:
    if part is None:
        return None
    return {"data": part.data, "tables": [_table(table) for table in part.tables]}


def _table(table: Table) -> Json:
    """Return the table's fields without deep copies of its cells, which ``asdict`` would make."""
    fields = {field.name: getattr(table, field.name) for field in dataclasses.fields(table)}
    return fields | {"columns": [dataclasses.asdict(column) for column in table.columns]}


def _app_names(whole: Whole, sections: Sequence[Section]) -> list[str]:
    """Return the names of apps in order of their colours; of many apps, those with a colour and those in a table."""
    run = whole.run
    frames = next(([frame] for frame in (run.apps, run.jobs) if frame.height), [run.leases, run.segments, run.rho])
    names: list[str] = pl.concat([frame["app"].unique() for frame in frames]).unique().drop_nulls().sort().to_list()
    if len(names) <= MOST_NAMES:
        return names
    return sorted({*names[:COLOURED], *_named(sections)})


def _named(sections: Sequence[Section]) -> Iterator[str]:
    """Yield the apps in tables that users can filter by app."""
    for part in (part for section in sections for part in section.views if part is not None):
        for table in part.tables:
            if table.app is not None:
                yield from (str(row[table.app]) for row in table.rows if row[table.app] is not None)


def _until(whole: Whole) -> float:
    """Return the latest time in the shown runs' tables, in seconds since the first arrival."""
    last = [
        end.max()
        for run in (view.run for view in whole.views)
        for end in (
            run.segments["end_seconds"],
            run.leases["end_seconds"],
            run.rho["time_seconds"],
            run.rounds["time_seconds"],
            run.jobs["finish_seconds"],
        )
    ]
    return round(max((float(end) for end in last if isinstance(end, int | float)), default=1.0), 3) or 1.0


def _title(run: RunData) -> str:
    if run.facts is None:
        return run.name
    policies = ", ".join(run.facts.profiles)
    return run.facts.kind if policies in ("", run.facts.kind) else f"{run.facts.kind}: {policies}"


def _subtitle(whole: Whole) -> str:
    facts = whole.run.facts
    if facts is None:
        return ""
    several = len(facts.seeds) > 5
    listed = f"{facts.seeds[0]} to {facts.seeds[-1]}" if several else ", ".join(map(str, facts.seeds))
    seeds = f"{'seed' if len(facts.seeds) == 1 else 'seeds'} {listed}"
    runs, shown = len(whole.summaries), len(whole.views)
    drawn = f"{count(runs, 'run')}, {shown} of them to look at one by one" if shown < runs else ""
    return "   ·   ".join(filter(None, [facts.machine, seeds, drawn, facts.started_at]))


def _asset(name: str) -> str:
    return resources.files("eunomia_testbed.report").joinpath("assets", name).read_text(encoding="utf-8")


_TEMPLATE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Eunomia: {title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>Eunomia <span>{title}</span></h1>
<p class="subtitle">{subtitle}</p>
</header>
<div class="top"><nav aria-label="Parts">{links}</nav><div id="runs" role="group" aria-label="Run that is shown"></div>
<div id="legend" role="group" aria-label="Apps"></div></div>
<noscript><p>The drawings and tables need JavaScript; the run's folder holds the same as Parquet files.</p></noscript>
<main>
{sections}
</main>
<footer>Click an app to see it alone. Drag over a time axis to zoom all of them; Esc shows everything again.
With the keyboard: Tab to a drawing, arrows step through it, + and - zoom, Shift and an arrow move.</footer>
<script type="application/json" id="data">{data}</script>
<script>
(() => {{
"use strict";
{script}
}})();
</script>
</body>
</html>
"""
