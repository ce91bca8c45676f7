"""Shows the progress of simulations: a bar for each running cell, or one line per event without a terminal."""

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from eunomia_testbed.running.plan import Cell, Plan
from eunomia_testbed.running.watching import Silent
from eunomia_testbed.simulator import Progress

DRAW_SECONDS: Final = 0.1
BAR: Final = 36


def display(plan: Plan, *, done: int = 0) -> "Display":
    """Return a display of a plan's progress on stderr: bars on a terminal, otherwise lines.

    Args:
        plan: the plan to run.
        done: number of cells that an earlier run finished.
    """
    total = len(plan.cells())
    return Bars(total, done) if sys.stderr.isatty() else Lines(total, done, _write)


class Display(Silent):
    """A display that shows nothing; the base of the other displays."""

    def close(self) -> None:
        """End the display, and clear its lines from the screen."""


class Lines(Display):
    """A display that writes a line when a cell has finished.

    Args:
        total: number of cells of the plan.
        done: number of cells that an earlier run finished.
        write: called with each line.
    """

    def __init__(self, total: int, done: int, write: Callable[[str], None]) -> None:
        self._total, self._done, self._write = total, done, write
        self._began: dict[Cell, float] = {}
        self._last: dict[Cell, Progress] = {}

    def began(self, cell: Cell) -> None:
        """Record the cell's start time."""
        self._began[cell] = time.monotonic()

    def moved(self, cell: Cell, progress: Progress) -> None:
        """Record the cell's progress."""
        self._last[cell] = progress

    def ended(self, cell: Cell) -> None:
        """Write a line on the finished cell; of resamples, only about every tenth of all cells."""
        self._done += 1
        took = time.monotonic() - self._began.pop(cell, time.monotonic())
        last = self._last.pop(cell, None)
        whole = last is not None and last.finished == last.jobs
        text = f"{last.jobs} jobs, simulated {simulated(last.time_seconds)}, " if last is not None and whole else ""
        if cell.resampled and self._done % max(1, self._total // 10):
            return  # for resamples, only ten lines over the whole plan
        self._write(f"{cell.name}: {text}{took:.1f} s   {self._done} of {self._total} done")


class Bars(Display):
    """A display with a progress bar for each running cell.

    Args:
        total: number of cells of the plan.
        done: number of cells that an earlier run finished.
    """

    def __init__(self, total: int, done: int) -> None:
        self._total, self._done = total, done
        self._running: dict[Cell, tuple[float, Progress | None]] = {}
        self._drawn_at = 0.0
        self._live: Any = None

    def began(self, cell: Cell) -> None:
        """Draw the cell's bar."""
        self._running[cell] = (time.monotonic(), None)
        self._draw(now=True)

    def moved(self, cell: Cell, progress: Progress) -> None:
        """Update the cell's bar."""
        began, _ = self._running.get(cell, (time.monotonic(), None))
        self._running[cell] = (began, progress)
        self._draw()

    def ended(self, cell: Cell) -> None:
        """Remove the cell's bar."""
        self._running.pop(cell, None)
        self._done += 1
        self._draw(now=True)

    def close(self) -> None:
        """Remove all bars."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, *, now: bool = False) -> None:
        moment = time.monotonic()
        if not now and moment - self._drawn_at < DRAW_SECONDS:
            return
        self._drawn_at = moment
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._lines(moment), refresh=True)

    def _lines(self, moment: float) -> Any:
        from rich.text import Text

        running = list(self._running.items())
        lines = [bar_line(cell, moment - began, progress) for cell, (began, progress) in running]
        if lines:
            lines[-1] += f"     {self._done} of {self._total} done"
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


def bar_line(cell: Cell, seconds: float, progress: Progress | None) -> str:
    """Return a cell's line of text: policy, bar, finished jobs, simulated time, and estimated seconds left."""
    name = cell.label if cell.seed == 0 else cell.name.replace(",", "")
    finished, jobs = (0, 0) if progress is None else (progress.finished, progress.jobs)
    part = finished / jobs if jobs else 0.0
    halves = round(part * 2 * BAR)
    bar = ("━" * (halves // 2) + "╸" * (halves % 2)).ljust(BAR, "─")
    text = (
        f"{name:<18} {bar}  {finished} of {jobs} jobs   simulated {simulated(progress.time_seconds if progress else 0)}"
    )
    left = f", about {seconds * (1 - part) / part:.0f} s left" if part > 0.02 else ""
    return f"{text}{left}"


def simulated(seconds: float) -> str:
    """Return simulated seconds as text, such as ``0d 03:07:12``."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    return f"{days}d {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
