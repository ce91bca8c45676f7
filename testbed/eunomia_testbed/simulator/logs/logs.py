"""Logs of a run: packed rows during the run, and columns at its end."""

import math
from typing import Any

import numpy as np

from eunomia.contract.decisions import COUNTED, Decision, TransitionKind
from eunomia.model.cluster import Cluster
from eunomia.units import Cause, Ints, Reals, Stage
from eunomia_testbed.simulator.logs.records import Codes, Records, spelt
from eunomia_testbed.simulator.logs.run import Leases, QueueLog, RoundLog, SegmentLog, WaitLog, Words
from eunomia_testbed.simulator.options import Keep

_NONE = [0] * len(COUNTED)
_COLUMN = {kind: COUNTED.index(kind.effect.past) if kind.effect.counted else len(COUNTED) for kind in TransitionKind}
"""The column of each kind of order in the table of rounds; kinds that are not counted share one after the last."""
_STAGES: dict[Stage | None, str] = {None: "", **{stage: stage.value for stage in Stage}}


def ints(items: list[int]) -> Ints:
    """Return items as an int64 array."""
    return np.array(items, dtype=np.int64)


def reals(items: list[float]) -> Reals:
    """Return items as a float64 array."""
    return np.array(items, dtype=np.float64)


def words(items: list[Any]) -> Words:
    """Return items as an object array."""
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


class LeaseLogger:
    """A log of the lease and job that held each GPU, and when."""

    def __init__(self) -> None:
        self.records = Records("iiiqddB")
        """Rows of app, job, GPU, lease, start and end in seconds, and code of ``ended_by``, by GPU, lease and job."""
        self.reasons = Codes[str]()
        """Codes of the reasons for which leases end; the reason is empty for a GPU that is still held."""

    def columns(self) -> Leases:
        """Return the log as columns, and clear its rows."""
        app, job, gpu, lease, start, end, why = self.records.take()
        return Leases(
            app=app,
            job=job,
            gpu=gpu,
            lease=lease,
            start_seconds=start,
            end_seconds=end,
            ended_by=spelt(why, list(self.reasons)),
        )


class RoundLogger:
    """A log of rounds."""

    def __init__(self) -> None:
        self._rows = Records(f"qdHiii{'i' * len(COUNTED)}Bi")
        self._causes = Codes[frozenset[Cause]]()
        self._faults = Codes("")

    def add(self, decision: Decision, now: float, free: int, running: int, waiting: int, *, quiet: bool) -> None:
        """Log the round of a decision, with the state before it."""
        counts = _NONE
        if decision.transitions:
            counts = [*_NONE, 0]
            for order in decision.transitions:
                counts[_COLUMN[order.kind]] += 1
            counts = counts[:-1]
        causes = self._causes[decision.causes]
        fault = self._faults[_faults_text(decision)] if decision.faults else 0
        rows = self._rows
        rows.rows += rows.pack(decision.round, now, causes, free, running, waiting, *counts, quiet, fault)

    def columns(self) -> RoundLog:
        """Return the log as columns, and clear its rows."""
        number, time, causes, free, running, waiting, *kinds, quiet, fault = self._rows.take()
        return RoundLog(
            round=number,
            time_seconds=time,
            causes=spelt(causes, ["+".join(sorted(cause.value for cause in each)) for each in self._causes]),
            free_gpus=free,
            running_jobs=running,
            waiting_jobs=waiting,
            quiet=quiet.astype(bool),
            fault=spelt(fault, list(self._faults)),
            **dict(zip(COUNTED, kinds, strict=True)),
        )


def _faults_text(decision: Decision) -> str:
    """Return the faults of a round as text."""
    faults = [fault for fault in decision.faults if fault.stage is not None]
    return "; ".join(f"{fault.plugin} ({fault.stage.value}): {fault.what}" for fault in faults if fault.stage)


class WaitLogger:
    """A log of how long each job waited, and why."""

    def __init__(self, jobs: int) -> None:
        self._rows = Records("iddi")
        self._reasons = Codes(("", "", ""))
        self._since = [math.nan] * jobs
        self._why = [0] * jobs
        self._pending: dict[int, int] = {}

    def begin(self, job: int, now: float, reason: str, stage: str = "", plugin: str = "") -> None:
        """Log that a job starts to wait, or waits for a new reason; a stopped job keeps the reason of its stop."""
        pending = self._pending.pop(job, None) if self._pending else None
        why = pending if pending is not None and not stage else self._reasons[reason, stage, plugin]
        since = self._since[job]
        if since == since:
            if self._why[job] == why:
                return
            if now > since:
                self._rows.add(job, since, now, self._why[job])
        self._since[job] = now
        self._why[job] = why

    def end(self, job: int, now: float) -> None:
        """Log that a job no longer waits."""
        if self._pending:
            self._pending.pop(job, None)
        since = self._since[job]
        if now > since:
            self._rows.rows += self._rows.pack(job, since, now, self._why[job])
        self._since[job] = math.nan

    def hear(self, decision: Decision, rows: dict[str, int], now: float) -> None:
        """Log the verdicts of a round on waiting jobs."""
        for waiting in decision.waiting:
            job = rows[waiting.job]
            if waiting.reason is None:
                continue
            why = waiting.reason.word, _STAGES[waiting.stage], waiting.plugin
            if self._since[job] == self._since[job]:
                self.begin(job, now, *why)
            else:
                # The job is being stopped: it waits once its checkpoint is written.
                self._pending[job] = self._reasons[why]

    def columns(self, now: float) -> WaitLog:
        """Return the log as columns, and clear its rows; waits that are still open end at ``now``."""
        for row, since in enumerate(self._since):
            if now > since:
                self.end(row, now)
        job, start, end, why = self._rows.take()
        reason, stage, plugin = map(list, zip(*self._reasons, strict=True))
        return WaitLog(
            job=job,
            start_seconds=start,
            end_seconds=end,
            reason=spelt(why, reason),
            stage=spelt(why, stage),
            plugin=spelt(why, plugin),
        )


class QueueLogger:
    """A log of the number of waiting jobs and of held GPUs."""

    def __init__(self) -> None:
        self._rows = Records("diii")
        self._since = math.nan
        self._last = (-1, -1, -1)

    def add(self, now: float, jobs: int, gpus: int, busy: int) -> None:
        """Log the values from ``now`` on if they have changed; of several values at one time, the last one counts."""
        row = (jobs, gpus, busy)
        if row == self._last:
            return
        if self._since < now:
            self._rows.rows += self._rows.pack(self._since, *self._last)
        self._since, self._last = now, row

    def columns(self) -> QueueLog:
        """Return the log as columns, and clear its rows."""
        if self._since == self._since:
            self._rows.add(self._since, *self._last)
        time, jobs, gpus, busy = self._rows.take()
        return QueueLog(time_seconds=time, waiting_jobs=jobs, waiting_gpus=gpus, busy_gpus=busy)


class SegmentLogger:
    """A log of the periods of constant speed of each job."""

    def __init__(self, cluster: Cluster, batch_sizes: "dict[int, tuple[float, ...]]") -> None:
        self._rows = Records("iddiidd")
        self._cluster = cluster
        self._batch = batch_sizes
        self._near: dict[tuple[int, ...], int] = {}

    def add(self, job: int, start: float, end: float, gpus: tuple[int, ...], pace: float, regime: int) -> None:
        """Log a period of constant speed."""
        size, locality, batch = len(gpus), 0, math.nan
        if size > 1:
            if gpus not in self._near:  # a job keeps its GPUs for many periods
                self._near[gpus] = int(self._cluster.locality(np.array(gpus)))
            locality = self._near[gpus]
        if job in self._batch:
            sizes = self._batch[job]
            batch = sizes[regime] if regime < len(sizes) else math.nan
        self._rows.rows += self._rows.pack(job, start, end, size, locality, pace, batch)

    def columns(self) -> SegmentLog:
        """Return the log as columns, and clear its rows."""
        job, start, end, gpus, locality, pace, batch = self._rows.take()
        return SegmentLog(
            job=job,
            start_seconds=start,
            end_seconds=end,
            gpus=gpus,
            locality=locality,
            seconds_per_iteration=pace,
            batch_size=batch,
        )


class Logs:
    """All logs of a run; a log that is not kept is None."""

    def __init__(self, keep: Keep, cluster: Cluster, jobs: int, batch_sizes: "dict[int, tuple[float, ...]]") -> None:
        self.leases = LeaseLogger() if keep.leases else None
        self.rounds = RoundLogger() if keep.rounds else None
        self.waits = WaitLogger(jobs) if keep.waits else None
        self.queue = QueueLogger() if keep.queue else None
        self.segments = SegmentLogger(cluster, batch_sizes) if keep.segments else None
