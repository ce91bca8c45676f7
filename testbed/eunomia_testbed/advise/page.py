"""Writes advice as one self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Sequence

from eunomia_testbed.advise.wording import Advice

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; } dt { font-weight: 600; }
dd { margin: 0; }
code { background: var(--soft); padding: .1rem .3rem; overflow-wrap: anywhere; } h2 { margin-top: 1.6rem; }
.soft { opacity: .75; } table { border-collapse: collapse; } td, th { padding: .3rem .7rem; border-bottom: 1px solid
var(--line); text-align: left; } .wide { overflow-x: auto; } @media print { body { max-width: none; } }
"""


def page(advice: Advice, table: Sequence[str], title: str) -> str:
    """Return the advice as an HTML page.

    Args:
        advice: the advice.
        table: the lines of the table of policies, as on the screen.
        title: the name of the trace and the cluster.
    """
    answers = "".join(f"<dt>{_text(line.label)}</dt><dd>{_text(line.text)}</dd>" for line in advice.answers)
    parts = [
        f"<h1>Which policy for {_text(title)}?</h1>",
        _paragraphs(advice.assumed, strong=True),
        f"<h2>The answer, by goal</h2><dl>{answers}</dl><p class=soft>{_text(advice.method)}</p>",
        _paragraphs(advice.limits),
        _listed("Conditions", advice.conditions),
        _listed("What would change it", advice.turns),
        f"<h2>The policies</h2><p>Compared: {_text(advice.fits)}.</p>",
        f'<div class="wide"><pre>{_text(chr(10).join(table))}</pre></div>' if table else "",
        _listed("Left out", advice.left_out),
        '<p>Tables, and a page of the run of the trace: <a href="trace/report.html">trace/report.html</a>.</p>',
        f"<h2>To repeat it</h2><p><code>{_text(advice.command)}</code></p><p class=soft>{_text(advice.spent)}.</p>",
    ]
    head = f'<meta charset="utf-8"><title>Advice: {_text(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _text(text: str) -> str:
    return html.escape(text)


def _paragraphs(lines: Sequence[str], *, strong: bool = False) -> str:
    tag = "strong" if strong else "span"
    return "".join(f"<p><{tag}>{_text(line)}</{tag}></p>" for line in lines)


def _listed(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<h2>{_text(title)}</h2><ul>{items}</ul>" if items else ""
