"""The fairness table below a simulation's answers: percentiles, maximum and tail by policy and kind of ρ."""

from __future__ import annotations

from collections.abc import Sequence

from eunomia_testbed.evidence.evidence import Evidence
from eunomia_testbed.evidence.wording import KIND_WORDS
from eunomia_testbed.metrics.fairness import KINDS
from eunomia_testbed.results.facts import RunFacts

HEAD = "ρ by kind: 90th percentile, 99th percentile, worst here, part above 1"


def rho_lines(facts: RunFacts, evidence: Evidence, policies: Sequence[str]) -> list[str]:
    """Return the lines of the table: a row for each policy, and a column for each kind of ρ; empty: no ρ is known.

    Args:
        facts: facts of the run; its kind of ρ comes first.
        evidence: the policies' figures.
        policies: the policies to show, in order.
    """
    kinds = [facts.rho, *(kind for kind in KINDS if kind != facts.rho)]
    cells = {policy: [_cell(evidence, policy, kind) for kind in kinds] for policy in policies}
    if not any(cell != "-" for row in cells.values() for cell in row):
        return []
    rows = [["policy", *(KIND_WORDS[kind] for kind in kinds)], *([policy, *row] for policy, row in cells.items())]
    widths = [max(len(row[at]) for row in rows) for at in range(len(kinds) + 1)]
    lines = ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [HEAD, *(line.rstrip() for line in lines)]


def _cell(evidence: Evidence, policy: str, kind: str) -> str:
    found = [evidence.figure(policy, f"rho_{kind}_{way}") for way in ("p90", "p99", "worst", "above_1_share")]
    if all(each is None for each in found):
        return "-"
    *points, above = found
    texts = ["-" if each is None else f"{each.value:.2f}" for each in points]
    return ", ".join([*texts, "-" if above is None else f"{100 * above.value:.0f} %"])
