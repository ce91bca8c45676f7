"""Shows the metrics that plugins add to the tables: their values by policy and seed, with unit and meaning."""

from __future__ import annotations

from eunomia_testbed.report.part import Column, Kind, Part, Table, rounded
from eunomia_testbed.report.view import Whole
from eunomia_testbed.results.columns import ColumnSpec, Figure


def plugin_metrics(whole: Whole) -> Part | None:
    """Make the page's part on plugins' metrics; None: no plugin declared a metric for the summary."""
    declared = [
        (spec, figure) for each in whole.run.added.values() for spec in each.values() for figure in spec.summary
    ]
    known = [(spec, figure) for spec, figure in declared if figure.name in whole.summaries.columns]
    if not known:
        return None
    rows = whole.summaries.select("policy", "seed", *(figure.name for _, figure in known)).iter_rows()
    head = [Column(label="policy", kind="policy"), Column(label="seed", kind="number")]
    return Part(
        name="metrics",
        title="Metrics of plugins",
        question="What do the installed plugins measure?",
        tables=[
            Table(
                title="By policy and seed",
                columns=[*head, *(_column(spec, figure) for spec, figure in known)],
                rows=[[rounded(value) for value in row] for row in rows],
                unit=whole.time_unit,
            )
        ],
    )


def _column(spec: ColumnSpec, figure: Figure) -> Column:
    kind: Kind = "seconds" if spec.unit == "s" else "percent" if spec.unit == "share" else "number"
    hint = f"{spec.meaning}, in {spec.unit}" if spec.unit else spec.meaning
    return Column(label=figure.label, kind=kind, digits=2 if kind == "seconds" else 3, hint=hint)
