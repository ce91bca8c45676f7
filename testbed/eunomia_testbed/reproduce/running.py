"""Runs the cells of a paper, and stores their results so that an interrupted run can resume."""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic

from eunomia.errors import InputError
from eunomia_testbed.reproduce.paper import C, F, Paper


class Store(Generic[C, F]):
    """A folder with one file for each finished cell.

    Args:
        folder: the folder, which is created if it does not exist.
        kind: the dataclass of results.
        code: fingerprint of the code that runs new cells.
    """

    def __init__(self, folder: Path, kind: type[F], code: str) -> None:
        self.folder = folder / "cells"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._kind = kind
        self._code = code
        self._codes: dict[str, str] = {}

    def stale(self) -> frozenset[str]:
        """Return the keys of loaded cells that were run by a different version of the code."""
        return frozenset(key for key, code in self._codes.items() if code != self._code)

    def missing(self, cells: Iterable[C]) -> list[C]:
        """Return the cells without stored results."""
        return [cell for cell in cells if not (self.folder / f"{cell.key}.json").exists()]

    def load(self, cells: Iterable[C]) -> dict[str, F]:
        """Return the results of stored cells, by key.

        Raises:
            InputError: a file's content was not written by this version.
        """
        found = {}
        for cell in cells:
            path = self.folder / f"{cell.key}.json"
            if path.exists():
                found[cell.key] = self._read(path, cell.key)
        return found

    def save(self, cell: C, figures: F) -> None:
        """Store a cell's results atomically."""
        path = self.folder / f"{cell.key}.json"
        made = {"code": self._code, "cell": dataclasses.asdict(cell), "figures": dataclasses.asdict(figures)}
        part = path.with_suffix(".part")
        part.write_text(json.dumps(made) + "\n")
        part.replace(path)

    def withdraw(self, others: Iterable[Path]) -> None:
        """Remove the folder if no cell was run, so that a corrected command can use it.

        Args:
            others: files in the run's folder that were written before the first cell.
        """
        if any(self.folder.iterdir()):
            return
        for path in others:
            path.unlink(missing_ok=True)
        self.folder.rmdir()
        with contextlib.suppress(OSError):  # it holds files of others
            self.folder.parent.rmdir()

    def _read(self, path: Path, key: str) -> F:
        try:
            whole: Mapping[str, Any] = json.loads(path.read_text())
            made, self._codes[key] = whole["figures"], whole.get("code", "")
            return self._kind(**{name: tuple(item) if isinstance(item, list) else item for name, item in made.items()})
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                "a cell's file must be whole; remove it to run it again", value=str(error), place=str(path)
            ) from error


def run_cells(
    paper: Paper[Any, C, F],
    cells: Sequence[C],
    store: Store[C, F],
    *,
    processes: int,
    seconds: float,
    done_one: Callable[[C, F, int, int], None],
) -> dict[str, F]:
    """Run the cells without stored results in worker processes; return the results of all finished cells.

    Args:
        paper: the paper of the cells.
        cells: the cells to run.
        store: the stored results.
        processes: number of processes; 1: this process.
        seconds: wall time from the call, after which no further cell starts.
        done_one: called after each cell with the cell, its results, and the numbers of finished and of all cells.

    Raises:
        EunomiaError: a cell failed; the results of finished cells are kept.
    """
    done = store.load(cells)
    left = [cell for cell in cells if cell.key not in done]
    for cell, figures in _each(paper, left, processes, time.monotonic() + seconds):
        store.save(cell, figures)
        done[cell.key] = figures
        done_one(cell, figures, len(done), len(cells))
    return done


def _each(paper: Paper[Any, C, F], cells: Sequence[C], processes: int, until: float) -> Iterator[tuple[C, F]]:
    """Yield cells with their results as they finish; with one process, in order of the cells."""
    if processes <= 1:
        for cell in cells:
            if time.monotonic() >= until:
                return
            yield cell, paper.run(cell)
        return
    from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
    from multiprocessing import get_context

    waiting = iter(cells)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: dict[Future[F], C] = {}
        while True:
            while len(running) < processes and time.monotonic() < until:
                following = next(waiting, None)
                if following is None:
                    break
                running[pool.submit(paper.run, following)] = following
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def processes_here() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))
