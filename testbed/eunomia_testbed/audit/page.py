"""Makes one self-contained page of an audit: a row for each profile, a column for each property."""

import html
from collections.abc import Mapping, Sequence
from typing import Final

from eunomia_testbed.audit.full import FullAudit
from eunomia_testbed.audit.reasons import reason
from eunomia_testbed.audit.table import summary, times_text
from eunomia_testbed.audit.tally import Tally
from eunomia_testbed.audit.violations import Property, Violation
from eunomia_testbed.audit.wording import sentence, size_text

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 90rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; } th, td { padding: .35rem .6rem; text-align: left;
vertical-align: top; border-bottom: 1px solid var(--line); font-size: .92em; }
.none { color: #009e73; font-weight: 600; } .some { color: #d55e00; font-weight: 600; }
.cannot { color: #e69f00; font-weight: 600; } small { color: #888; display: block; }
"""


def page(audits: Sequence[FullAudit], title: str) -> str:
    """Return the page as HTML.

    Args:
        audits: the audits, one row each.
        title: heading of the page.
    """
    once = _table([(made, made.once.tallies) for made in audits])
    over = _table([(made, made.over_rounds) for made in audits if made.over_rounds])
    times = "".join(f"<li>{html.escape(f'{made.name}: {times_text(made)}')}</li>" for made in audits)
    below = "".join(_below(made) for made in audits)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>"
        "<p>Part of the instances that violate a property, and the largest violation; "
        '<span class="cannot">cannot</span>: a reason is known why a policy of this kind cannot have it.</p>'
        f"<h2>One allocation</h2>{once}<h2>Time received over simulated rounds</h2>{over}<ul>{times}</ul>"
        f"<h2>Smallest counterexamples</h2>{below}</body></html>\n"
    )


def _table(rows: Sequence[tuple[FullAudit, Mapping[Property, Tally]]]) -> str:
    """Return the table as HTML; a property by which no profile was judged has no column."""
    kinds = [kind for kind in Property if any(kind in tallies for _, tallies in rows)]
    if not kinds:
        return "<p>not simulated</p>"
    head = "".join(f"<th>{html.escape(kind.label)}</th>" for kind in kinds)
    body = "".join(_row(made, [tallies[kind] for kind in kinds if kind in tallies]) for made, tallies in rows)
    return f'<div class="wide"><table><thead><tr><th>profile</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(made: FullAudit, tallies: Sequence[Tally]) -> str:
    cells = "".join(_cell(made, tally) for tally in tallies)
    judged = "whole GPUs" if made.once.policy.whole else "shares"
    return f"<tr><th>{html.escape(made.name)}<small>{judged}</small></th>{cells}</tr>"


def _cell(made: FullAudit, tally: Tally) -> str:
    if tally.instances == 0:
        return "<td>not judged</td>"
    if tally.largest is None:
        return '<td class="none">none found</td>'
    why = "" if tally.largest.over_rounds else reason(made.once, tally.kind)
    marked = f"<small>cannot: {html.escape(why)}</small>" if why else ""
    largest = html.escape(size_text(tally.kind, tally.largest.size))
    kind = "cannot" if why else "some"
    return f'<td><span class="{kind}">{100.0 * tally.share:.0f} %</span><small>up to {largest}</small>{marked}</td>'


def _below(made: FullAudit) -> str:
    tallies = made.tallies
    items = "".join(_item(tally.smallest) for tally in tallies if tally.smallest is not None)
    name = html.escape(made.name)
    return f"<h3>{name}</h3><p>{html.escape(summary(made))}</p><ul>{items or '<li>none</li>'}</ul>"


def _item(found: Violation) -> str:
    over = " over rounds" if found.over_rounds else ""
    return f"<li><b>{html.escape(found.kind.label)}{over}.</b> {html.escape(sentence(found))}</li>"
