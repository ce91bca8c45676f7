"""Lists failed runs with their errors; the other parts of the page leave them out."""

from __future__ import annotations

import html

from eunomia_testbed.report.part import Part
from eunomia_testbed.report.view import Whole
from eunomia_testbed.report.words import count


def failed_runs(whole: Whole) -> Part | None:
    """Make the page's part on failed runs; None: every run completed."""
    facts = whole.run.facts
    if facts is None or not facts.failures:
        return None
    rows = [
        f'<li class="bad"><p class="asks">{html.escape(each.run)}</p>'
        '<p class="answer"><span class="mark" aria-hidden="true">✕</span>Failed</p>'
        f"<p>{html.escape(each.error)}</p></li>"
        for each in facts.failures
    ]
    return Part(
        name="failed",
        title=f"{count(len(rows), 'run').capitalize()} failed",
        question="Which runs are missing below, and why?",
        html=f'<ul class="statements">{"".join(rows)}</ul>',
    )
