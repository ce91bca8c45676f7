"""Formats claims and settings as lines of text and as plain values."""

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Sequence

from eunomia_testbed.reproduce.paper import PaperGrid, Row
from eunomia_testbed.reproduce.verdicts import Verdict

WIDTH = 118


def fixed_lines(sentences: Sequence[str]) -> list[str]:
    """Wrap sentences to lines of text."""
    return [line for part in sentences for line in textwrap.wrap(part, WIDTH, subsequent_indent="  ")]


def screen_lines(rows: Sequence[Row]) -> list[str]:
    """Return the table, with the reason below each claim that does not hold without reservation."""
    lines = [f"{'claim':<74} {'paper':<24} {'here':<22} verdict"]
    for claim, found in rows:
        named = f"{claim.figure:<9} {claim.text}"
        parts = textwrap.wrap(named, 73, subsequent_indent=" " * 10)
        lines.append(f"{parts[0]:<74} {claim.printed:<24} {found.text:<22} {found.verdict.value}")
        lines += parts[1:]
        lines += textwrap.wrap(found.reason, WIDTH, initial_indent=" " * 10, subsequent_indent=" " * 10)
    return [*lines, "", count_line(rows)]


def count_line(rows: Sequence[Row]) -> str:
    """Return the number of claims that hold, as a line of text."""
    count = Counter(found.verdict for _, found in rows)
    return (
        f"{count[Verdict.HOLDS]} of {len(rows)} claims hold, {count[Verdict.DIRECTION]} in direction only, "
        f"{count[Verdict.FAILS]} do not (with the reason), {count[Verdict.NOT_MEASURABLE]} not measurable on their "
        f"workload, {count[Verdict.UNMEASURED]} not measured here"
    )


def plain_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the claims as plain values for JSON."""
    return [
        {
            "figure": claim.figure,
            "claim": claim.text,
            "paper": claim.printed,
            "here": found.text,
            "verdict": found.verdict.value,
            "reason": found.reason,
            "values": list(found.values),
            "by_seed": {name: list(numbers) for name, numbers in found.by_seed.items()},
        }
        for claim, found in rows
    ]


def plain_grid(grid: PaperGrid) -> dict[str, object]:
    """Return the grid as plain values for JSON."""
    plain = {field.name: getattr(grid, field.name) for field in dataclasses.fields(grid)}
    return {name: list(item) if isinstance(item, tuple) else item for name, item in plain.items()}
