"""Logs of a run: plain lists while it runs, columns at its end."""

import math
from typing import Any

import numpy as np

from eunomia.cluster import Cluster
from eunomia.decisions import Decision, TransitionKind
from eunomia.units import Cause, Ints, Reals
from eunomia.verdicts import Reason
from eunomia_testbed.simulator.options import Keep
from eunomia_testbed.simulator.run import Leases, QueueLog, RoundLog, SegmentLog, WaitLog, Words

_NONE = (0, 0, 0, 0, 0)
_ONE_START = (1, 0, 0, 0, 0)
LeaseEntry = tuple[int, int, int, int, float, float, str]
_KINDS = (
    TransitionKind.START,
    TransitionKind.SUSPEND,
    TransitionKind.GROW,
    TransitionKind.SHRINK,
    TransitionKind.MIGRATE,
)


def ints(items: list[int]) -> Ints:
    """A column of whole numbers."""
    return np.array(items, dtype=np.int64)


def reals(items: list[float]) -> Reals:
    """A column of numbers."""
    return np.array(items, dtype=np.float64)


def words(items: list[Any]) -> Words:
    """A column of texts."""
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


def _columns(rows: list[Any], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def lease_columns(rows: list[LeaseEntry]) -> Leases:
    """Leases as columns."""
    app, job, gpu, lease, start, end, ended_by = _columns(rows, 7)
    return Leases(
        app=ints(app),
        job=ints(job),
        gpu=ints(gpu),
        lease=ints(lease),
        start_seconds=reals(start),
        end_seconds=reals(end),
        ended_by=words(ended_by),
    )


class RoundLogger:
    """Logs rounds."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._causes: dict[frozenset[Cause], str] = {}

    def add(self, decision: Decision, now: float, free: int, running: int, waiting: int, *, quiet: bool) -> None:
        """Log the round of a decision, with the state that it met."""
        transitions = decision.transitions
        counts: tuple[int, ...] = _NONE
        if len(transitions) == 1 and transitions[0].kind is TransitionKind.START:
            counts = _ONE_START
        elif transitions:
            kinds = [order.kind for order in transitions]
            counts = tuple([kinds.count(kind) for kind in _KINDS])
        causes = self._causes.get(decision.causes)
        if causes is None:
            causes = self._causes[decision.causes] = "+".join(sorted(cause.value for cause in decision.causes))
        said = ""
        if decision.faults:
            faults = [fault for fault in decision.faults if fault.stage is not None]
            said = "; ".join(f"{fault.plugin} ({fault.stage.value}): {fault.what}" for fault in faults if fault.stage)
        self._rows.append((decision.round, now, causes, free, running, waiting, counts, quiet, said))

    def columns(self) -> RoundLog:
        """The log as columns."""
        made = _columns([(*row[:6], *row[6], *row[7:]) for row in self._rows], 13)
        return RoundLog(
            round=ints(made[0]),
            time_seconds=reals(made[1]),
            causes=words(made[2]),
            free_gpus=ints(made[3]),
            running_jobs=ints(made[4]),
            waiting_jobs=ints(made[5]),
            started=ints(made[6]),
            suspended=ints(made[7]),
            grown=ints(made[8]),
            shrunk=ints(made[9]),
            migrated=ints(made[10]),
            quiet=np.array(made[11], dtype=bool),
            fault=words(made[12]),
        )


class WaitLogger:
    """Logs for how long each job waited, and why."""

    def __init__(self, jobs: int) -> None:
        self._rows: list[tuple[int, float, float, str, str, str]] = []
        self._since = [math.nan] * jobs
        self._why = [("", "", "")] * jobs
        self._told: dict[int, tuple[str, str, str]] = {}

    def begin(self, job: int, now: float, reason: str, stage: str = "", plugin: str = "") -> None:
        """A job waits from now on, or for another reason; one that was stopped for the reason that was told then."""
        told = self._told.pop(job, None)
        if told is not None and not stage:
            reason, stage, plugin = told
        since = self._since[job]
        if since == since:
            if self._why[job] == (reason, stage, plugin):
                return
            if now > since:
                self._rows.append((job, since, now, *self._why[job]))
        self._since[job] = now
        self._why[job] = (reason, stage, plugin)

    def end(self, job: int, now: float) -> None:
        """A job waits no longer."""
        self._told.pop(job, None)
        since = self._since[job]
        if now > since:
            self._rows.append((job, since, now, *self._why[job]))
        self._since[job] = math.nan

    def hear(self, decision: Decision, rows: dict[str, int], now: float) -> None:
        """Note the verdicts of a round."""
        for waiting in decision.waiting:
            job = rows[waiting.job]
            if waiting.reason is None:
                continue
            why = Reason(waiting.reason).word, "" if waiting.stage is None else waiting.stage.value, waiting.plugin
            if self._since[job] == self._since[job]:
                self.begin(job, now, *why)
            else:
                self._told[job] = why  # it is being stopped: it waits once its checkpoint is written

    def columns(self, now: float) -> WaitLog:
        """The log as columns; those who still wait wait until now."""
        for row, since in enumerate(self._since):
            if now > since:
                self.end(row, now)
        job, start, end, reason, stage, plugin = _columns(self._rows, 6)
        return WaitLog(
            job=ints(job),
            start_seconds=reals(start),
            end_seconds=reals(end),
            reason=words(reason),
            stage=words(stage),
            plugin=words(plugin),
        )


class QueueLogger:
    """Logs how many wait, and how many GPUs are held."""

    def __init__(self) -> None:
        self._time: list[float] = []
        self._rest: list[tuple[int, int, int]] = []
        self._last = (-1, -1, -1)

    def add(self, now: float, jobs: int, gpus: int, busy: int) -> None:
        """Log what holds from now on, where it changed."""
        row = (jobs, gpus, busy)
        if row == self._last:
            return
        self._last = row
        if self._time and self._time[-1] == now:
            self._rest[-1] = row
        else:
            self._time.append(now)
            self._rest.append(row)

    def columns(self) -> QueueLog:
        """The log as columns."""
        jobs, gpus, busy = _columns(self._rest, 3)
        return QueueLog(
            time_seconds=reals(self._time), waiting_jobs=ints(jobs), waiting_gpus=ints(gpus), busy_gpus=ints(busy)
        )


class SegmentLogger:
    """Logs stretches of one speed."""

    def __init__(self, cluster: Cluster, batch_sizes: "dict[int, tuple[float, ...]]") -> None:
        self._rows: list[tuple[int, float, float, int, int, float, float]] = []
        self._cluster = cluster
        self._batch = batch_sizes
        self._near: dict[tuple[int, ...], int] = {}

    def add(self, job: int, start: float, end: float, gpus: tuple[int, ...], pace: float, regime: int) -> None:
        """Log a stretch."""
        locality = self._locality(gpus) if len(gpus) > 1 else 0
        sizes = self._batch.get(job, ())
        batch = sizes[regime] if regime < len(sizes) else math.nan
        self._rows.append((job, start, end, len(gpus), locality, pace, batch))

    def _locality(self, gpus: tuple[int, ...]) -> int:
        """A job stays where it is for many stretches."""
        known = self._near.get(gpus)
        if known is None:
            known = self._near[gpus] = int(self._cluster.locality(np.array(gpus)))
        return known

    def columns(self) -> SegmentLog:
        """The log as columns."""
        job, start, end, gpus, locality, pace, batch = _columns(self._rows, 7)
        return SegmentLog(
            job=ints(job),
            start_seconds=reals(start),
            end_seconds=reals(end),
            gpus=ints(gpus),
            locality=ints(locality),
            seconds_per_iteration=reals(pace),
            batch_size=reals(batch),
        )


class Logs:
    """All logs of a run; None: not kept."""

    def __init__(self, keep: Keep, cluster: Cluster, jobs: int, batch_sizes: "dict[int, tuple[float, ...]]") -> None:
        self.leases: list[LeaseEntry] | None = [] if keep.leases else None
        self.rounds = RoundLogger() if keep.rounds else None
        self.waits = WaitLogger(jobs) if keep.waits else None
        self.queue = QueueLogger() if keep.queue else None
        self.segments = SegmentLogger(cluster, batch_sizes) if keep.segments else None
