"""Which cells ``reproduce themis`` runs, and where their figures are kept: a run that was stopped goes on."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eunomia.errors import InputError
from eunomia.model.shapes import builds, value
from eunomia_testbed.reproduce.cells import POLICIES, Cell, Figures, run_cell

CONTENTIONS = (1, 2, 4)
NETWORK_PARTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
NETWORK_POLICIES = ("themis", "gandiva", "tiresias")
"""Of Figures 15 and 16: beside Themis the ideals of efficiency and of fairness."""
ERRORS = (0.0, 0.1, 0.2)
LIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
KNOBS = (0.0, 0.4, 0.8, 1.0)
LEASES = (300.0, 600.0, 1200.0)


@value
class Grid:
    """What is run: fixed before anything is, and printed."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    testbed_apps: int = 20
    """Apps on the testbed cluster; the paper's snapshot has 85."""
    simulator_apps: int = 20
    """Apps on the simulator's cluster."""

    # --- by figure --------------------------------------------------------------------------------------------------

    def testbed(self, workload: str, policy: str, seed: int, shrink: int = 1) -> Cell:
        """Figures 9 to 14 and Table 5."""
        return Cell(policy=policy, seed=seed, workload=workload, shrink=shrink, apps=self.testbed_apps)

    def network(self, part: float, policy: str, seed: int) -> Cell:
        """Figures 15 and 16."""
        return dataclasses.replace(self._simulated(policy, seed), network_intensive=part)

    def error(self, error: float, seed: int) -> Cell:
        """Figure 17."""
        return dataclasses.replace(self._simulated("themis", seed), error=error)

    def lie(self, lie: float, seed: int) -> Cell:
        """Figure 18."""
        return Cell(policy="themis", seed=seed, workload="identical", cluster="lying", apps=8, error=0.0, lie=lie)

    def knob(self, fairness_knob: float, lease_seconds: float, seed: int) -> Cell:
        """Figure 19."""
        made = self._simulated("themis", seed)
        return dataclasses.replace(made, fairness_knob=fairness_knob, lease_seconds=lease_seconds)

    def _simulated(self, policy: str, seed: int) -> Cell:
        return Cell(policy=policy, seed=seed, workload="2", cluster="simulator", apps=self.simulator_apps)

    # --- all --------------------------------------------------------------------------------------------------------

    def cells(self) -> Sequence[Cell]:
        """All, each once, seed by seed: a run that is cut short has whole seeds."""
        return tuple(dict.fromkeys(cell for seed in self.seeds for cell in self._of_seed(seed)))

    def _of_seed(self, seed: int) -> Iterator[Cell]:
        for policy in POLICIES:
            for workload in ("1", "2"):
                yield self.testbed(workload, policy, seed)
            for shrink in CONTENTIONS:
                yield self.testbed("1", policy, seed, shrink)
        yield from (self.network(part, policy, seed) for part in NETWORK_PARTS for policy in NETWORK_POLICIES)
        yield from (self.error(error, seed) for error in ERRORS)
        yield from (self.lie(lie, seed) for lie in LIES)
        yield from (self.knob(knob, 600.0, seed) for knob in KNOBS)
        yield from (self.knob(0.8, lease, seed) for lease in LEASES)


@builds
class Runs:
    """What has been run of a grid."""

    grid: Grid
    done: Mapping[str, Figures]
    """By key of the cell."""

    def of(self, make: Callable[[int], Cell]) -> list[Figures]:
        """The figures of a cell for each seed that has been run."""
        keys = [make(seed).key for seed in self.grid.seeds]
        return [self.done[key] for key in keys if key in self.done]

    def by_policy(self, make: Callable[[str, int], Cell], policies: Iterable[str]) -> dict[str, list[Figures]]:
        """The same for each policy; only seeds that all of them have run."""
        policies = list(policies)
        keys = {policy: [make(policy, seed).key for seed in self.grid.seeds] for policy in policies}
        whole = [at for at in range(len(self.grid.seeds)) if all(keys[policy][at] in self.done for policy in policies)]
        return {policy: [self.done[keys[policy][at]] for at in whole] for policy in policies}


class Store:
    """A folder with a file a cell.

    Args:
        folder: made where it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cells"
        self.folder.mkdir(parents=True, exist_ok=True)

    def load(self, cells: Iterable[Cell]) -> dict[str, Figures]:
        """The cells that are there, by key.

        Raises:
            InputError: a file that is not what was written.
        """
        found = {}
        for cell in cells:
            path = self.folder / f"{cell.key}.json"
            if path.exists():
                found[cell.key] = _read(path)
        return found

    def save(self, cell: Cell, figures: Figures) -> None:
        """Keep a cell; a file is there whole or not at all."""
        path = self.folder / f"{cell.key}.json"
        made = {"cell": dataclasses.asdict(cell), "figures": dataclasses.asdict(figures)}
        part = path.with_suffix(".part")
        part.write_text(json.dumps(made) + "\n")
        part.replace(path)


def _read(path: Path) -> Figures:
    try:
        made: Any = json.loads(path.read_text())
        return Figures.of_json(made["figures"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            "a cell's file must be whole; remove it to run it again", value=str(error), place=str(path)
        ) from error


def run_grid(
    grid: Grid, store: Store, *, processes: int, seconds: float, told: Callable[[Cell, Figures, int, int], None]
) -> Runs:
    """Run what is not there yet, in processes of their own.

    Args:
        grid: what to run.
        store: where figures are kept.
        processes: how many at a time; 1: in this one.
        seconds: after which no further cell is begun.
        told: called with each cell that is done, its figures, and how many of how many are.

    Raises:
        EunomiaError: what a cell raised; those that were done stay.
    """
    cells = grid.cells()
    done = store.load(cells)
    left = [cell for cell in cells if cell.key not in done]
    for cell, figures in _each(left, processes, time.monotonic() + seconds):
        store.save(cell, figures)
        done[cell.key] = figures
        told(cell, figures, len(done), len(cells))
    return Runs(grid=grid, done=done)


def _each(cells: Sequence[Cell], processes: int, until: float) -> Iterator[tuple[Cell, Figures]]:
    """Cells with their figures, as they are done; in order of the grid where one process runs them."""
    if processes <= 1:
        for cell in cells:
            if time.monotonic() >= until:
                return
            yield cell, run_cell(cell)
        return
    from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
    from multiprocessing import get_context

    waiting = iter(cells)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: dict[Future[Figures], Cell] = {}
        while True:
            while len(running) < processes and time.monotonic() < until:
                following = next(waiting, None)
                if following is None:
                    break
                running[pool.submit(run_cell, following)] = following
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def processes_here() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))
