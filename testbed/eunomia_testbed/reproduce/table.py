"""Formats claims and settings as lines of text and as plain values."""

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from eunomia_testbed.reproduce.paper import Claim, PaperGrid, Row
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

WIDTH = 118


def fixed_lines(sentences: Sequence[str]) -> list[str]:
    """Wrap sentences into lines of text."""
    return [line for part in sentences for line in textwrap.wrap(part, WIDTH, subsequent_indent="  ")]


def verdict_words(claim: Claim[Any, Any, Any], found: Measured) -> str:
    """Return the verdict with its marks, such as for a goal, a dependence on a setting, or stale results."""
    marks = ["goal, ours"] if claim.goal else []
    marks += [f"depends on {found.depends_on}"] if found.depends_on else []
    marks += ["marked"] if claim.marked else []
    marks += ["stale"] if found.stale else []
    return " ".join([found.verdict.value, *([f"({', '.join(marks)})"] if marks else [])])


def screen_lines(rows: Sequence[Row]) -> list[str]:
    """Return the table of claims as lines, with the reason below each claim."""
    lines = [f"{'claim':<74} {'paper':<24} {'here':<22} verdict"]
    for claim, found in rows:
        parts = textwrap.wrap(f"{claim.figure:<9} {claim.text}", 73, subsequent_indent=" " * 10)
        lines.append(f"{parts[0]:<74} {claim.printed:<24} {found.text:<22} {verdict_words(claim, found)}")
        lines += parts[1:]
        beside = [f"{name}: {words}" for name, words in found.beside.items()]
        for note in (found.reason, *beside, *filter(None, [claim.marked])):
            lines += textwrap.wrap(note, WIDTH, initial_indent=" " * 10, subsequent_indent=" " * 10)
    return [*lines, "", count_line(rows)]


def count_line(rows: Sequence[Row]) -> str:
    """Return the number of claims by verdict as a line of text; goals are counted separately."""
    count = Counter(found.verdict for claim, found in rows if not claim.goal)
    goals = [found.verdict for claim, found in rows if claim.goal]
    line = f"{count[Verdict.HOLDS]} of {count.total()} claims hold, " + ", ".join(
        f"{count[verdict]} {verdict.value}" for verdict in Verdict if verdict is not Verdict.HOLDS
    )
    return f"{line}; {goals.count(Verdict.HOLDS)} of {len(goals)} goals" if goals else line


def plain_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the claims as plain values for JSON."""
    return [
        {
            "section": claim.section,
            "figure": claim.figure,
            "claim": claim.text,
            "paper": claim.printed,
            "here": found.text,
            "verdict": found.verdict.value,
            "why": found.reason,
            "beside": dict(found.beside),
            "depends_on": found.depends_on,
            "goal": claim.goal,
            "marked": claim.marked,
            "stale": found.stale,
            "differs": list(claim.differs),
            "values": list(found.values),
            "by_seed": {name: list(numbers) for name, numbers in found.by_seed.items()},
        }
        for claim, found in rows
    ]


def plain_grid(grid: PaperGrid) -> dict[str, object]:
    """Return the grid as plain values for JSON."""
    plain = {field.name: getattr(grid, field.name) for field in dataclasses.fields(grid)}
    return {name: list(item) if isinstance(item, tuple) else item for name, item in plain.items()}
