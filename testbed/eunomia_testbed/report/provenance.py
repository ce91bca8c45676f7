"""Part 9, provenance: the facts needed to repeat the run, and its tables for download."""

from __future__ import annotations

import html
import shlex

from eunomia_appmaster.csv_cells import frame_csv
from eunomia_testbed.report.part import Json, Part
from eunomia_testbed.results.facts import RunFacts
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.tables import TABLES

MOST_TABLE_BYTES, MOST_BYTES = 250_000, 1_000_000
"""Largest size in bytes of a table on the page, and of all together; larger tables stay only in the folder."""


def provenance(run: RunData) -> Part | None:
    """Make the page's part on provenance; None: the run has neither ``run.json`` nor tables."""
    tables, left = _tables(run)
    if run.facts is None and not tables:
        return None
    listed = f"<p>Too large for this page, in the folder of the run: {', '.join(left)}.</p>" if left else ""
    return Part(
        name="provenance",
        title="Provenance",
        question="Can I repeat this?",
        html=(_facts(run.facts) if run.facts is not None else "") + listed,
        data={"run": run.name, "csv": tables},
    )


def _facts(facts: RunFacts) -> str:
    """Return the content of ``run.json`` as markup."""
    pairs = [
        ("command", f"<code>{html.escape(shlex.join(facts.command))}</code>"),
        ("seeds", html.escape(", ".join(map(str, facts.seeds)))),
        ("machine", html.escape(facts.machine)),
        ("clock", html.escape(facts.clock)),
        ("from", html.escape(facts.started_at or "")),
        ("to", html.escape(" ".join(filter(None, [facts.ended_at, facts.ended and f"({facts.ended})"])))),
        ("versions", html.escape(", ".join(f"{name} {version}" for name, version in facts.versions.items()))),
        ("inputs", "<br>".join(f"<code>{html.escape(f'{each.sha256}  {each.path}')}</code>" for each in facts.inputs)),
    ]
    pairs += [("loads", ", ".join(f"{html.escape(name)} × {load:g}" for name, load in facts.loads.items()))]
    pairs += [("notes", "<br>".join(html.escape(note) for note in facts.notes))]
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in pairs if value)
    texts = [*((f"profile {name}", text) for name, text in facts.profiles.items()), ("cluster", facts.cluster)]
    return f"<dl>{listed}</dl>" + "".join(_text(title, text) for title, text in texts if text)


def _text(title: str, text: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre></details>"


def _tables(run: RunData) -> tuple[dict[str, Json], list[str]]:
    """Return the tables as CSV by name, and the names of tables that are too large."""
    frames = {name: run.table(name) for name in TABLES} | {
        f"plugins/{name}": each for name, each in run.records.items()
    }
    taken: dict[str, Json] = {}
    left: list[str] = []
    total = 0
    for name, frame in frames.items():
        if frame.is_empty():
            continue
        text = frame_csv(frame) if frame.estimated_size() <= 2 * MOST_TABLE_BYTES else None
        if text is None or len(text) > MOST_TABLE_BYTES or total + len(text) > MOST_BYTES:
            left.append(name)
            continue
        total += len(text)
        taken[name] = text
    return taken, left
