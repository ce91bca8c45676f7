"""The file of recorded curves: comment lines that state its origin, then CSV with a row for each point."""

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path

from eunomia.errors import InputError
from eunomia.model.shapes import value

COLUMNS = ("model", "trial", "parameters", "iteration", "val/accuracy", "val/loss")


@value
class RecordedCurve:
    """The points that one trial reported, one for each epoch."""

    model: str
    trial: int
    parameters: str
    """Parameters as on the command line, without dashes: ``lr=0.01 width=64``."""
    iterations: tuple[int, ...]
    accuracies: tuple[float, ...]
    """Accuracies on the held-out fifth, 0 to 1."""
    losses: tuple[float, ...]
    """Cross entropy on the held-out fifth; NaN and infinity are kept."""

    def metrics(self, metric: str) -> tuple[float, ...]:
        """Return the ``val/accuracy`` or ``val/loss`` of each point."""
        return self.accuracies if metric == "val/accuracy" else self.losses


def write(path: Path, curves: Iterable[RecordedCurve], provenance: Iterable[str]) -> None:
    """Write curves in their order; accuracies have five digits (one held-out image is 0.00278), losses five."""
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in provenance)
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for curve in curves:
        points = zip(curve.iterations, curve.accuracies, curve.losses, strict=True)
        rows.writerows(
            (curve.model, curve.trial, curve.parameters, iteration, f"{accuracy:.5g}", f"{loss:.5g}")
            for iteration, accuracy, loss in points
        )
    path.write_text(text.getvalue())


def read(path: Path) -> tuple[RecordedCurve, ...]:
    """Read curves, in the file's order.

    Raises:
        InputError: the file cannot be read, has other columns, or has a row that does not continue the one before it.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputError("a file of curves must be readable", value=str(error), place=path.name) from error
    start = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    header, *rows = csv.reader(lines[start:]) if lines[start:] else [[]]
    if tuple(header) != COLUMNS:
        raise InputError(f"columns must be {', '.join(COLUMNS)}", value=", ".join(header), place=path.name)
    points: dict[tuple[str, int, str], list[tuple[int, float, float]]] = {}
    for number, row in enumerate(rows, start + 2):
        place = f"{path.name}, line {number}"
        try:
            model, trial, parameters, *numbers = row
            iteration, accuracy, loss = int(numbers[0]), float(numbers[1]), float(numbers[2])
            before = points.setdefault((model, int(trial), parameters), [])
        except (ValueError, IndexError) as error:
            raise InputError("a row must be a point of a curve", value=",".join(row), place=place) from error
        if iteration < 0 or (before and iteration <= before[-1][0]) or math.isinf(accuracy):
            raise InputError("iterations must ascend within a trial", value=str(iteration), place=place)
        before.append((iteration, accuracy, loss))
    return tuple(_curve(key, rows) for key, rows in points.items())


def _curve(key: tuple[str, int, str], points: list[tuple[int, float, float]]) -> RecordedCurve:
    iterations, accuracies, losses = zip(*points, strict=True)
    model, trial, parameters = key
    return RecordedCurve(
        model=model, trial=trial, parameters=parameters, iterations=iterations, accuracies=accuracies, losses=losses
    )
