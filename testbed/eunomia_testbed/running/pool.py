"""Runs cells sequentially in this process, or in parallel in worker processes, with the same results."""

import contextlib
import functools
import json
import os
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eunomia.errors import EunomiaError
from eunomia.platform.registry import DEFAULT_PLUGINS
from eunomia_testbed.calls.clock import LateCall
from eunomia_testbed.calls.guardian import cpu_seconds
from eunomia_testbed.calls.guarding import end_process, guarded
from eunomia_testbed.calls.limits import CallTooLongError, too_long
from eunomia_testbed.calls.page import CallPage
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
"""Number of jobs in all cells below which two worker processes save no time. Workers take 0.7 s to start, in which
one process simulates 1,400 jobs under FIFO or 200 under LAS."""


class WorkerDiedError(EunomiaError):
    """A worker process was killed; finished cells are kept."""


def processes_for(plan: Plan, cells: Sequence[Cell], asked: int | None) -> int:
    """Return the number of worker processes: as requested, or one per CPU, but at most one per cell; 0: this process.

    Small plans with only Eunomia's own plugins run in this process, as do plans with plugins that no other process can
    load. Other plugins run in a worker, which can be killed if a call does not return, unless one process is requested.
    """
    if not can_travel(plan):
        return 0
    small = len(cells) < 2 or (asked is None and plan.jobs * len(cells) < WORTH_A_PROCESS)
    count = 1 if small else max(1, min(asked or len(os.sched_getaffinity(0)), len(cells)))
    return 0 if count == 1 and (asked == 1 or not has_others(plan)) else count


def has_others(plan: Plan) -> bool:
    """Return whether third-party plugins are installed; each of them may observe a run or add metrics to it."""
    return any(name not in DEFAULT_PLUGINS for profile in plan.profiles.values() for name in profile.registry.names)


def without_late(failed: Iterable[FailedCell], cells: Iterable[Cell]) -> tuple[list[Cell], list[FailedCell]]:
    """Return the cells of policies without late calls, and the other cells as failures with that error."""
    late = {each.cell.policy: each.error for each in failed if isinstance(each.error, CallTooLongError)}
    left = list(cells)
    others = [FailedCell(cell=cell, error=late[cell.policy]) for cell in left if cell.policy in late]
    return [cell for cell in left if cell.policy not in late], others


def run_cells(plan: Plan, cells: Source, folder: Path, *, processes: int, watch: Watch) -> list[FailedCell]:
    """Run the cells and write their files.

    Args:
        plan: the plan of the cells.
        cells: the source of the cells to run.
        folder: folder of the results.
        processes: number of worker processes; 0: the current process runs the cells.
        watch: receives the progress.

    Returns:
        Failed cells, for example after a plugin's exception; the other cells have finished. After a call that took
            too long, further cells of the same policy fail without being run.

    Raises:
        DiskError: no more files can be written; finished cells are kept.
        WorkerDiedError: a process was killed; finished cells are kept.
    """
    if processes > 0:
        return _Pool(plan, cells, folder, watch).run(processes)
    with guarded(plan.limits, folder) if has_others(plan) else contextlib.nullcontext() as page:
        return _run_here(plan, cells, folder, watch, page)


def _run_here(plan: Plan, cells: Source, folder: Path, watch: Watch, page: CallPage | None) -> list[FailedCell]:
    failed: list[FailedCell] = []
    end = functools.partial(end_process, folder=folder)
    while (cell := _next_in_time(cells, failed)) is not None:
        watch.began(cell)
        began, before = time.process_time(), len(failed)
        try:
            run_cell(plan, cell, folder, functools.partial(watch.moved, cell), page=page, unreachable=end)
        except DiskError:
            raise
        except EunomiaError as error:
            failed.append(FailedCell(cell=cell, error=error))
        else:
            watch.ended(cell)
        cells.ended(cell, time.process_time() - began, failed=len(failed) > before)
    return failed


def _next_in_time(cells: Source, failed: list[FailedCell]) -> Cell | None:
    """Return the next cell of a policy without late calls; skipped cells are recorded as failed."""
    while (cell := cells.next()) is not None:
        _, late = without_late(failed, [cell])
        if not late:
            return cell
        failed += late
        cells.ended(cell, 0.0, failed=True)
    return None


class _Pool:
    """Dispatches cells to worker processes until all cells have ended; a disk error or a dead worker ends the run."""

    def __init__(self, plan: Plan, source: Source, folder: Path, watch: Watch) -> None:
        self._cells = plan.cells()
        self._numbers = {cell: number for number, cell in enumerate(self._cells)}
        self._source, self._idle = source, list[Worker]()
        self._plan, self._folder, self._watch, self._limits = packed(plan), folder, watch, plan.limits
        self._news: queue.SimpleQueue[tuple[Worker, dict[str, Any] | None]] = queue.SimpleQueue()
        self._busy: dict[Worker, int] = {}
        self._calls: dict[Worker, LateCall] = {}
        self._spent_before: dict[Worker, float] = {}
        """CPU seconds that each worker had used when it began its current cell."""
        self._looked_at = 0.0
        self._failed: list[FailedCell] = []

    def run(self, processes: int) -> list[FailedCell]:
        try:
            with Workers(self._plan, self._folder) as workers:
                for _ in range(processes):
                    self._start(workers)
                tick = self._late().tick
                while self._busy:
                    with contextlib.suppress(queue.Empty):
                        self._handle(*self._news.get(timeout=tick))
                    self._end_late_calls(workers, tick)
        except ServerDiedError as error:
            first = self._cells[min(self._busy.values(), default=0)]
            raise _died(error.process, error.code, first) from error
        return self._failed

    def _start(self, workers: Workers) -> None:
        worker = workers.start()
        threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
        self._idle.append(worker)
        self._give()

    def _handle(self, worker: Worker, message: dict[str, Any] | None) -> None:
        if worker not in self._busy:
            return
        if message is None:
            raise _died(worker.process, worker.exit_code(), self._cells[self._busy[worker]])
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
        """Send cells to idle workers as long as both are available."""
        while self._idle and (cell := _next_in_time(self._source, self._failed)) is not None:
            self._send(self._idle.pop(), self._numbers[cell])

    def _send(self, worker: Worker, number: int) -> None:
        self._busy[worker], self._calls[worker] = number, self._late()
        self._spent_before[worker] = cpu_seconds(worker.process) or 0.0
        self._watch.began(self._cells[number])
        try:
            worker.requests.write(f"{number}\n".encode())
            worker.requests.flush()
        except BrokenPipeError as error:
            raise _died(worker.process, worker.exit_code(), self._cells[number]) from error

    def _late(self) -> LateCall:
        return LateCall(self._limits.cpu_seconds, self._limits.wall_seconds)

    def _end_late_calls(self, workers: Workers, tick: float) -> None:
        """Kill workers whose plugin call exceeds its limit despite the exception, and start new workers."""
        now = time.monotonic()
        if now - self._looked_at < tick:
            return
        self._looked_at = now
        for worker, number in list(self._busy.items()):
            spent = cpu_seconds(worker.process)
            if spent is None:
                continue
            exceeded = self._calls[worker].look(worker.page.numbers[0], spent, now)
            if exceeded is None:
                continue
            del self._busy[worker]
            worker.kill()
            worker.exit_code()
            self._failed.append(
                FailedCell(cell=self._cells[number], error=too_long(self._limits, exceeded, worker.page))
            )
            self._source.ended(self._cells[number], spent - self._spent_before[worker], failed=True)
            self._start(workers)

    def _listen(self, worker: Worker) -> None:
        with contextlib.suppress(ValueError):  # an incomplete line of a worker that died
            for line in worker.answers:
                self._news.put((worker, json.loads(line)))
        self._news.put((worker, None))


def _died(process: int, code: int, cell: Cell) -> WorkerDiedError:
    how = f"by signal {-code}" if code < 0 else f"with {code}"
    value = f"process {process} ended {how}"
    return WorkerDiedError("a simulation must not be killed", value=value, place=f"{cell.label}, seed {cell.seed}")
