"""Runs cells one after another in this process, or in parallel in worker processes, with equal results."""

import contextlib
import functools
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from eunomia.errors import EunomiaError
from eunomia_testbed.results.writing import DiskError
from eunomia_testbed.running.cell_files import run_cell
from eunomia_testbed.running.plan import Cell, FailedCell, Plan
from eunomia_testbed.running.portable import can_travel, packed
from eunomia_testbed.running.watching import Watch
from eunomia_testbed.running.worker import hand_over, raised
from eunomia_testbed.simulator import Progress

WORTH_A_PROCESS = 4_000
"""Number of jobs in all cells below which worker processes save no time."""


class WorkerDiedError(EunomiaError):
    """A worker process was killed; finished cells are kept."""


def processes_for(plan: Plan, cells: Sequence[Cell], asked: int | None) -> int:
    """Return the number of processes: as requested, or one per CPU, but at most one per cell.

    One process, this one, is enough for small plans, and needed if only this process knows the plugins.
    """
    if len(cells) < 2 or not can_travel(plan) or (asked is None and plan.jobs * len(cells) < WORTH_A_PROCESS):
        return 1
    return max(1, min(asked or len(os.sched_getaffinity(0)), len(cells)))


def run_cells(plan: Plan, cells: Sequence[Cell], folder: Path, *, processes: int, watch: Watch) -> list[FailedCell]:
    """Run the cells and write their files.

    Args:
        plan: the plan of the cells.
        cells: the cells to run.
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
    for cell in cells:
        watch.began(cell)
        try:
            run_cell(plan, cell, folder, functools.partial(watch.moved, cell))
        except DiskError:
            raise
        except EunomiaError as error:
            failed.append(FailedCell(cell=cell, error=error))
        else:
            watch.ended(cell)
    return failed


class _Pool:
    """Distributes cells to worker processes until all are done or one fails."""

    def __init__(self, plan: Plan, cells: Sequence[Cell], folder: Path, watch: Watch) -> None:
        self._cells = plan.cells()
        numbers = {cell: number for number, cell in enumerate(self._cells)}
        self._left = iter([numbers[cell] for cell in cells])
        self._open = len(cells)
        self._plan, self._folder, self._watch = packed(plan), folder, watch
        self._news: queue.SimpleQueue[tuple[subprocess.Popen[bytes], dict[str, Any] | None]] = queue.SimpleQueue()
        self._busy: dict[int, int] = {}
        self._failed: list[FailedCell] = []

    def run(self, processes: int) -> list[FailedCell]:
        with contextlib.ExitStack() as stack:
            for _ in range(processes):
                worker = stack.enter_context(_worker())
                threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
                try:
                    hand_over(_input(worker), self._plan, self._folder)
                except BrokenPipeError as error:
                    raise _died(worker, self._cells[0]) from error
                self._give(worker)
            while self._open:
                self._handle(*self._news.get())
        return self._failed

    def _handle(self, worker: "subprocess.Popen[bytes]", message: dict[str, Any] | None) -> None:
        if message is None:
            if worker.pid in self._busy:
                raise _died(worker, self._cells[self._busy[worker.pid]])
            return
        cell = self._cells[message["cell"]]
        if "progress" in message:
            finished, jobs, seconds = message["progress"]
            self._watch.moved(cell, Progress(finished=finished, jobs=jobs, time_seconds=seconds))
            return
        if "error" in message:
            error = raised(message["error"])
            if isinstance(error, DiskError) or not isinstance(error, EunomiaError):
                raise error
            self._failed.append(FailedCell(cell=cell, error=error))
        else:
            self._watch.ended(cell)
        self._open -= 1
        del self._busy[worker.pid]
        self._give(worker)

    def _give(self, worker: "subprocess.Popen[bytes]") -> None:
        number = next(self._left, None)
        if number is None:
            _input(worker).close()
            return
        self._busy[worker.pid] = number
        self._watch.began(self._cells[number])
        try:
            _input(worker).write(f"{number}\n".encode())
            _input(worker).flush()
        except BrokenPipeError as error:
            raise _died(worker, self._cells[number]) from error

    def _listen(self, worker: "subprocess.Popen[bytes]") -> None:
        for line in worker.stdout or ():
            self._news.put((worker, json.loads(line)))
        self._news.put((worker, None))


@contextlib.contextmanager
def _worker() -> Iterator["subprocess.Popen[bytes]"]:
    """Start a worker that ends with the block; it has its own session, so that Ctrl-C reaches only this process."""
    paths = os.pathsep.join(path for path in sys.path if path)
    worker = subprocess.Popen(
        [sys.executable, "-m", "eunomia_testbed.running.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        yield worker
    finally:
        if worker.poll() is None and worker.stdin is not None and not worker.stdin.closed:
            worker.kill()
        worker.wait()


def _input(worker: "subprocess.Popen[bytes]") -> BinaryIO:
    if worker.stdin is None:
        raise EunomiaError("a worker must have an input")
    return worker.stdin  # type: ignore[return-value]


def _died(worker: "subprocess.Popen[bytes]", cell: Cell) -> WorkerDiedError:
    code = worker.wait()
    value = f"process {worker.pid} ended by signal {-code}" if code < 0 else f"process {worker.pid} ended with {code}"
    return WorkerDiedError("a simulation must not be killed", value=value, place=f"{cell.label}, seed {cell.seed}")
