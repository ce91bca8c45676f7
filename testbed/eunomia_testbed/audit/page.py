"""One self-contained page of an audit: a row a profile, a column a property."""

import html
from collections.abc import Sequence
from typing import Final

from eunomia_testbed.audit.auditing import Audit, Tally
from eunomia_testbed.audit.reasons import reason
from eunomia_testbed.audit.table import summary
from eunomia_testbed.audit.violations import Property
from eunomia_testbed.audit.wording import sentence, size_text

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 90rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; } th, td { padding: .35rem .6rem; text-align: left;
vertical-align: top; border-bottom: 1px solid var(--line); font-size: .92em; }
.none { color: #009e73; font-weight: 600; } .some { color: #d55e00; font-weight: 600; }
.cannot { color: #e69f00; font-weight: 600; } small { color: #888; display: block; }
"""


def page(audits: Sequence[Audit], title: str) -> str:
    """The page as HTML.

    Args:
        audits: a row each.
        title: its heading.
    """
    head = "".join(
        f"<th>{html.escape(kind.label)}</th>" for kind in Property if any(kind in made.tallies for made in audits)
    )
    rows = "".join(_row(made) for made in audits)
    below = "".join(_below(made) for made in audits)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>"
        "<p>Part of the instances that violate a property, and the largest violation; "
        '<span class="cannot">cannot</span>: a reason is known why a policy of this kind cannot have it.</p>'
        f'<div class="wide"><table><thead><tr><th>profile</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        f"<h2>Smallest counterexamples</h2>{below}</body></html>\n"
    )


def _row(made: Audit) -> str:
    cells = "".join(_cell(made, tally) for tally in made.tallies.values())
    judged = "whole GPUs" if made.policy.whole else "shares"
    return f"<tr><th>{html.escape(made.policy.profile.name)}<small>{judged}</small></th>{cells}</tr>"


def _cell(made: Audit, tally: Tally) -> str:
    if tally.largest is None:
        return '<td class="none">none found</td>'
    why = reason(made, tally.kind)
    marked = f"<small>cannot: {html.escape(why)}</small>" if why else ""
    largest = html.escape(size_text(tally.kind, tally.largest.size))
    kind = "cannot" if why else "some"
    return f'<td><span class="{kind}">{100.0 * tally.share:.0f} %</span><small>up to {largest}</small>{marked}</td>'


def _below(made: Audit) -> str:
    found = [tally.smallest for tally in made.tallies.values() if tally.smallest is not None]
    items = "".join(f"<li><b>{html.escape(each.kind.label)}.</b> {html.escape(sentence(each))}</li>" for each in found)
    name = html.escape(made.policy.profile.name)
    return f"<h3>{name}</h3><p>{html.escape(summary(made))}</p><ul>{items or '<li>none</li>'}</ul>"
