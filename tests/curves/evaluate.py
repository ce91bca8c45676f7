"""Measure tuners on recorded curves: ``PYTHONPATH=tests python -m curves.evaluate FILE``.

The first table shows how well final metrics are predicted, the second what each tuner stops, saves and loses.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.table import Table

from curves.coverage import foretell
from curves.replay import Metric
from curves.stops import outcome
from curves.table import RecordedCurve, read
from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.tuner import TUNERS, load_tuner

FRACTIONS = (0.15, 0.25, 0.5, 0.75)
TUNERS_MEASURED = ("none", "median_stopping", "curve_stopping")


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="PYTHONPATH=tests python -m curves.evaluate", description=__doc__)
    parser.add_argument("file", type=Path, help="what curves.record has written")
    parser.add_argument("--tuner", action="append", help="a kind of tuner; default: none, median and curve stopping")
    parser.add_argument("--metric", choices=get_args(Metric), default="val/accuracy")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the tuners")
    parser.add_argument("--slots", type=int, default=0, help="trials that run at once; default: all")
    given = parser.parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        searches = by_model(read(given.file))
        console.print(coverage_table(searches, given.metric))
        kinds = given.tuner or [kind for kind in TUNERS_MEASURED if kind in TUNERS]
        console.print(stops_table(searches, given.metric, kinds, dict(_options(given.set)), given.slots))
    except EunomiaError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def by_model(curves: Sequence[RecordedCurve]) -> dict[str, list[RecordedCurve]]:
    """The trials of each model, in the file's order."""
    models = dict.fromkeys(curve.model for curve in curves)
    return {model: [curve for curve in curves if curve.model == model] for model in models}


def _options(given: Sequence[str]) -> Iterator[tuple[str, object]]:
    for text in given:
        key, equals, content = text.partition("=")
        if not equals:
            raise InputError("--set must be KEY=VALUE", value=text)
        yield key, [float(part) for part in content.strip("[]").split(",")] if content.startswith("[") else content


def coverage_table(searches: dict[str, list[RecordedCurve]], metric: Metric) -> Table:
    """Return how often final metrics are within intervals, by fraction of the run."""
    table = Table(title=f"Ends of {metric} predicted", title_justify="left")
    for column in (
        "part of the run",
        "curves",
        "within 80 %",
        "within 90 %",
        "better than 90 %",
        "median width of 80 %",
    ):
        table.add_column(column, justify="right")
    for fraction in FRACTIONS:
        forecasts = [each for curves in searches.values() for each in foretell(curves, metric, fraction)]
        widths = sorted(each.width for each in forecasts)
        table.add_row(
            f"{fraction:.0%}",
            str(len(forecasts)),
            *(f"{sum(each.within(nominal) for each in forecasts) / len(forecasts):.0%}" for nominal in (0.8, 0.9)),
            f"{sum(each.rank < 0.05 for each in forecasts) / len(forecasts):.0%}",
            f"{widths[len(widths) // 2]:.3f}",
        )
    return table


def stops_table(
    searches: dict[str, list[RecordedCurve]],
    metric: Metric,
    kinds: Sequence[str],
    options: dict[str, object],
    slots: int,
) -> Table:
    """Return what each tuner stops, saves and loses in each search."""
    table = Table(title=f"Searches by {metric}", title_justify="left")
    for column in ("tuner", "model", "trials", "stopped", "wrong stops", "iterations saved", "best lost", "CPU s"):
        table.add_column(column, justify="left" if column in ("tuner", "model") else "right")
    for kind in kinds:
        options_type: Any = load_tuner(kind).options_type
        own = {key: each for key, each in options.items() if key in options_type.model_fields}
        for model, curves in searches.items():
            began = time.process_time()
            found = outcome(kind, curves, metric=metric, options=own, slots=slots)
            table.add_row(
                kind,
                model,
                str(found.trials),
                str(found.stopped),
                " ".join(map(str, (len(found.wrong), *(f"#{trial}" for trial in found.wrong)))),
                f"{found.saved:.1%}",
                f"{found.lost:.4f}",
                f"{time.process_time() - began:.1f}",
            )
    return table


if __name__ == "__main__":
    sys.exit(main())
