"""The page around the parts: one file, with its data as JSON, its styles and its scripts."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from eunomia_testbed.report.decisions import decisions
from eunomia_testbed.report.fairness import fairness
from eunomia_testbed.report.part import Json, Part
from eunomia_testbed.report.provenance import provenance
from eunomia_testbed.report.searches import searches
from eunomia_testbed.report.verdict import verdict
from eunomia_testbed.report.who_held_what import who_held_what
from eunomia_testbed.report.words import count
from eunomia_testbed.results.run_data import RunData

PARTS: Final[Sequence[Callable[[RunData], Part | None]]] = (
    verdict,
    who_held_what,
    fairness,
    searches,
    decisions,
    provenance,
)
"""The parts in the order of the page; each answers None where the run has no data for it."""

SCRIPTS: Final = ("state.js", "format.js", "svg.js", "chart.js", "table.js", "held.js", "fairness.js", "searches.js",
                  "decisions.js", "page.js")  # fmt: skip
"""The scripts in the order in which they are joined into one."""


def render(run: RunData) -> str:
    """The page of a run; of several policies or seeds the first, until the page can compare them."""
    one = run.only(*run.runs()[0]) if run.runs() else run
    parts = [part for part in (make(one) for make in PARTS) if part is not None]
    title = _title(run)
    return _TEMPLATE.format(
        title=html.escape(title),
        subtitle=html.escape(_subtitle(run)),
        style=_asset("report.css"),
        links="".join(f'<a href="#{part.name}">{html.escape(part.title)}</a>' for part in parts),
        sections="\n".join(_section(part) for part in parts) or "<p>This run left no data.</p>",
        data=embed({"apps": _app_names(one), "span": _span(one), "parts": {part.name: _data(part) for part in parts}}),
        script="\n".join(_asset(name) for name in SCRIPTS),
    )


def write_report(folder: Path) -> Path:
    """Read a result folder and write its ``report.html``; returns the file.

    Raises:
        InputError: no such folder, or a table in it is not as this version writes it.
    """
    page = render(RunData.load(folder))
    target = folder / "report.html"
    part = target.with_name(".report.html.part")
    part.write_text(page, encoding="utf-8")
    part.replace(target)
    return target


def embed(data: Json) -> str:
    """JSON that can stand within a script element: no text in it can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(part: Part) -> str:
    return (
        f'<section id="{part.name}" aria-labelledby="{part.name}-title"><h2 id="{part.name}-title" tabindex="-1">'
        f'{html.escape(part.title)}</h2><p class="asks">{html.escape(part.question)}</p>{part.html}'
        f'<div class="drawn"></div><div class="tables"></div></section>'
    )


def _data(part: Part) -> Json:
    return {"data": part.data, "tables": [dataclasses.asdict(table) for table in part.tables]}


def _app_names(run: RunData) -> list[str]:
    """Every app by name: its place in the list gives its colour."""
    frames = (run.apps, run.jobs, run.leases, run.segments)
    return sorted({str(app) for frame in frames for app in frame["app"].unique()})


def _span(run: RunData) -> list[float]:
    """From the first arrival to the last moment that any table knows."""
    ends = (run.segments["end_seconds"], run.leases["end_seconds"], run.rho["time_seconds"], run.rounds["time_seconds"])
    last = [end.max() for end in ends]
    return [0.0, round(max((float(end) for end in last if isinstance(end, int | float)), default=1.0), 3)]


def _title(run: RunData) -> str:
    if run.facts is None:
        return run.name
    policies = ", ".join(run.facts.profiles)
    return run.facts.kind if policies in ("", run.facts.kind) else f"{run.facts.kind}: {policies}"


def _subtitle(run: RunData) -> str:
    if run.facts is None:
        return ""
    facts = run.facts
    seeds = f"{'seed' if len(facts.seeds) == 1 else 'seeds'} {', '.join(map(str, facts.seeds))}"
    shown = (
        f"shown: {' seed '.join(map(str, run.runs()[0]))} of {count(len(run.runs()), 'run')}"
        if len(run.runs()) > 1
        else ""
    )
    return "   ·   ".join(filter(None, [facts.machine, seeds, facts.started_at, shown]))


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
<div class="bar"><nav aria-label="Parts">{links}</nav><div id="legend" role="group" aria-label="Apps"></div></div>
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
