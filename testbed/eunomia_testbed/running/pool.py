"""Runs cells one after another in this process, or in parallel in worker processes, with equal results."""

import contextlib
import functools
import json
import os
import queue
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eunomia.errors import EunomiaError
from eunomia_testbed.results.writing import DiskError
from eunomia_testbed.running.cell_files import run_cell
from eunomia_testbed.running.dispatch import Source
from eunomia_testbed.running.plan import Cell, FailedCell, Plan
from eunomia_testbed.running.portable import can_travel, packed
from eunomia_testbed.running.watching import Watch
from eunomia_testbed.running.worker import raised
from eunomia_testbed.running.workers import ServerDiedError, Worker, Workers
from eunomia_testbed.simulator import Progress

WORTH_A_PROCESS = 2_000
"""Number of jobs in all cells below which two worker processes save no time: they start within 0.7 s, in which one
process simulates 1,400 jobs under FIFO or 200 under LAS."""


class WorkerDiedError(EunomiaError):
    """A worker process was killed; finished cells are kept."""


def processes_for(plan: Plan, cells: Sequence[Cell], asked: int | None) -> int:
    """Return the number of processes: as requested, or one per CPU, but at most one per cell.

    One process, this one, is enough for small plans, and needed if only this process knows the plugins.
    """
    if len(cells) < 2 or not can_travel(plan) or (asked is None and plan.jobs * len(cells) < WORTH_A_PROCESS):
        return 1
    return max(1, min(asked or len(os.sched_getaffinity(0)), len(cells)))


def run_cells(plan: Plan, cells: Source, folder: Path, *, processes: int, watch: Watch) -> list[FailedCell]:
    """Run the cells and write their files.

    Args:
        plan: the plan of the cells.
        cells: hands out the cells to run.
        folder: folder of the results.
        processes: number of processes; 1: only this one.
        watch: called with the progress.

    Returns:
        Failed cells, for example by a fault of a plugin; the other cells are done.

    Raises:
        DiskError: no more files can be written; finished cells are kept.
        WorkerDiedError: a process was killed; finished cells are kept.
    """
    if processes > 1:
        return _Pool(plan, cells, folder, watch).run(processes)
    failed: list[FailedCell] = []
    while (cell := cells.next()) is not None:
        watch.began(cell)
        began, before = time.process_time(), len(failed)
        try:
            run_cell(plan, cell, folder, functools.partial(watch.moved, cell))
        except DiskError:
            raise
        except EunomiaError as error:
            failed.append(FailedCell(cell=cell, error=error))
        else:
            watch.ended(cell)
        cells.ended(cell, time.process_time() - began, failed=len(failed) > before)
    return failed


class _Pool:
    """Distributes cells to worker processes until all are done or one fails."""

    def __init__(self, plan: Plan, source: Source, folder: Path, watch: Watch) -> None:
        self._cells = plan.cells()
        self._numbers = {cell: number for number, cell in enumerate(self._cells)}
        self._source, self._idle = source, list[Worker]()
        self._plan, self._folder, self._watch = packed(plan), folder, watch
        self._news: queue.SimpleQueue[tuple[Worker, dict[str, Any] | None]] = queue.SimpleQueue()
        self._busy: dict[Worker, int] = {}
        self._failed: list[FailedCell] = []

    def run(self, processes: int) -> list[FailedCell]:
        try:
            with Workers(self._plan, self._folder) as workers:
                for _ in range(processes):
                    worker = workers.start()
                    threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
                    self._idle.append(worker)
                    self._give()
                while self._busy:
                    self._handle(*self._news.get())
        except ServerDiedError as error:
            first = self._cells[min(self._busy.values(), default=0)]
            raise _died(error.process, error.code, first) from error
        return self._failed

    def _handle(self, worker: Worker, message: dict[str, Any] | None) -> None:
        if message is None:
            if worker in self._busy:
                raise _died(worker.process, worker.exit_code(), self._cells[self._busy[worker]])
            return
        cell = self._cells[message["cell"]]
        if "progress" in message:
            finished, jobs, seconds = message["progress"]
            self._watch.moved(cell, Progress(finished=finished, jobs=jobs, time_seconds=seconds))
            return
        failed = "error" in message
        if failed:
            error = raised(message["error"])
            if isinstance(error, DiskError) or not isinstance(error, EunomiaError):
                raise error
            self._failed.append(FailedCell(cell=cell, error=error))
        else:
            self._watch.ended(cell)
        self._source.ended(cell, float(message["cpu_seconds"]), failed=failed)
        del self._busy[worker]
        self._idle.append(worker)
        self._give()

    def _give(self) -> None:
        """Give cells to workers without one, as far as there are cells now."""
        while self._idle and (cell := self._source.next()) is not None:
            self._send(self._idle.pop(), self._numbers[cell])

    def _send(self, worker: Worker, number: int) -> None:
        self._busy[worker] = number
        self._watch.began(self._cells[number])
        try:
            worker.requests.write(f"{number}\n".encode())
            worker.requests.flush()
        except BrokenPipeError as error:
            raise _died(worker.process, worker.exit_code(), self._cells[number]) from error

    def _listen(self, worker: Worker) -> None:
        with contextlib.suppress(ValueError):  # a line that the worker could not write to its end
            for line in worker.answers:
                self._news.put((worker, json.loads(line)))
        self._news.put((worker, None))


def _died(process: int, code: int, cell: Cell) -> WorkerDiedError:
    how = f"by signal {-code}" if code < 0 else f"with {code}"
    value = f"process {process} ended {how}"
    return WorkerDiedError("a simulation must not be killed", value=value, place=f"{cell.label}, seed {cell.seed}")
