"""Estimates the CPU time of a run's simulations from the measured times of similar ones."""

from collections.abc import Callable, Sequence
from typing import Any


def estimated(seconds: Callable[[Any], float | None], cells: Sequence[Any]) -> str:
    """Return the CPU time of some cells as text, with the number of cells whose time is unknown.

    Args:
        seconds: estimates the CPU seconds of a cell; None: it is unknown.
        cells: at least one cell.
    """
    times = [seconds(cell) for cell in cells]
    known = [each for each in times if each is not None]
    if not known:
        return "CPU time not known beforehand"
    words = f"about {sum(known):.0f} s of CPU time"
    return words if len(known) == len(cells) else f"{words} for {len(known)} of them, of the others no time is known"


def to_come(seconds: Callable[[Any], float | None], cells: Sequence[Any], missing: Sequence[Any]) -> str:
    """Return as text how many cells of an earlier run remain, and their estimated CPU time.

    Args:
        seconds: as for ``estimated``.
        cells: all cells of the run.
        missing: the cells without stored results.
    """
    line = f"{len(cells) - len(missing)} of {len(cells)} simulations are in the folder"
    return f"{line}; left: {len(missing)}, {estimated(seconds, missing)}" if missing else line
