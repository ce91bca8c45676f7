"""Makes a self-contained HTML page of a reproduction: the claims, and bars of the measured numbers."""

import html
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from eunomia_testbed.reproduce.paper import Claim, Row
from eunomia_testbed.reproduce.table import count_line, verdict_words
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --bar: #0072b2; --soft: #8882; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .35rem .6rem; text-align: left; vertical-align: top;
border-bottom: 1px solid var(--line); } td.why { color: #888; font-size: .9em; }
.verdict { white-space: nowrap; font-weight: 600; } .holds { color: #009e73; } .direction { color: #e69f00; }
.fails { color: #d55e00; } .unmeasured { color: #888; } figure { margin: 1.2rem 0; } svg text { fill: currentColor;
font: 12px system-ui, sans-serif; } .bars { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr));
gap: 1rem; }
"""
_CLASS = {Verdict.HOLDS: "holds", Verdict.DIRECTION: "direction", Verdict.FAILS: "fails"}
_HEAD = ("section", "where", "claim", "paper", "here", "verdict", "why")


def page(title: str, rows: Sequence[Row], fixed: Sequence[str]) -> str:
    """Return the page as HTML.

    Args:
        title: heading of the page.
        rows: the measured claims.
        fixed: the decisions made before the first run, one sentence each.
    """
    body = "".join(_line(claim, found) for claim, found in rows)
    before = "".join(f"<li>{html.escape(line)}</li>" for line in fixed)
    named = ((f"{claim.figure}: {claim.text}", found.by_seed) for claim, found in rows if len(found.by_seed) > 1)
    bars = "".join(_bars(name, {label: fmean(each) for label, each in by.items()}) for name, by in named)
    head = "".join(f"<th>{name}</th>" for name in _HEAD)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1><p>{html.escape(count_line(rows))}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><h2>Behind them</h2>"
        f'<div class="bars">{bars}</div>'
        f"<h2>Fixed before the first run</h2><ul>{before}</ul></body></html>\n"
    )


def _line(claim: Claim[Any, Any, Any], found: Measured) -> str:
    cells = "".join(
        f"<td>{html.escape(text)}</td>" for text in (claim.section, claim.figure, claim.text, claim.printed, found.text)
    )
    differs = "".join(f"<br>{html.escape(line)}" for line in claim.differs)
    cells_of = f"<details><summary>cells</summary>{differs}</details>" if differs else ""
    return (
        f'<tr>{cells}<td class="verdict {_CLASS.get(found.verdict, "unmeasured")}">{verdict_words(claim, found)}</td>'
        f'<td class="why">{html.escape(found.reason)}{_by_seed(found)}{cells_of}</td></tr>'
    )


def _by_seed(found: Measured) -> str:
    """Return the numbers of each seed as collapsed HTML; empty: the claim has none."""
    if not found.by_seed:
        return ""
    lines = (f"{name}: {', '.join(map(_short, numbers))}" for name, numbers in found.by_seed.items())
    return f"<details><summary>by seed</summary>{'<br>'.join(map(html.escape, lines))}</details>"


def _bars(title: str, bars: Mapping[str, float]) -> str:
    """Return horizontal bars with their numbers; empty: no cell was run."""
    if not bars:
        return ""
    most = max(bars.values()) or 1.0
    lines = []
    for row, (name, size) in enumerate(bars.items()):
        top = 8 + 22 * row
        lines.append(
            f'<text x="84" y="{top + 13}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect x="92" y="{top}" width="{230 * size / most:.1f}" height="16" fill="#0072b2"></rect>'
            f'<text x="{98 + 230 * size / most:.1f}" y="{top + 13}">{_short(size)}</text>'
        )
    height = 16 + 22 * len(bars)
    return (
        f"<figure><figcaption>{html.escape(title)}</figcaption>"
        f'<svg viewBox="0 0 400 {height}" width="400" height="{height}" role="img">{"".join(lines)}</svg></figure>'
    )


def _short(size: float) -> str:
    return f"{size:.4g}" if size < 1e4 else f"{size:.0f}"
