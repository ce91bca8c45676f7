"""Carries out a plan of faults on the processes of a real run, and records the target of each fault.

A process is touched only if this run started it: its pid is read from the run's own supervisor or the files of its
launcher, and a signal is sent through a descriptor of the process with the start time that was read with the pid.
"""

import heapq
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Self

import structlog

from eunomia.model.shapes import value
from eunomia_appmaster.launcher.processes import ProcessId
from eunomia_testbed.live_runs.live_run import LiveRun
from eunomia_testbed.live_runs.processes import container_processes, process_of
from eunomia_testbed.replay.faults.plan import MOST_OF_ONE_JOB, OF_WORKERS, Fault, FaultKind, FaultPlan, chosen

LOOK_SECONDS: Final = 0.1
"""Seconds between two checks for due faults."""
JOIN_SECONDS: Final = 30.0


@value
class Target:
    """A process that a fault may hit; ``job`` is the app of an app master, and empty for arbiter and launcher."""

    name: str
    job: str
    process: ProcessId


@value
class Hit:
    """A fault that was carried out.

    Attributes:
        number: the fault's number in the plan.
        kind: what was done.
        planned_seconds: seconds after the first submission at which it was planned.
        at_seconds: seconds after the first submission at which it was carried out.
        at: Unix time at which it was carried out.
        target: container of the process, or the name of the service.
        job: job of the worker, or app of the app master; empty for arbiter and launcher.
        pid: pid of the process.
        start_time: start time of the process in clock ticks since boot.
        until: Unix time at which a stopped process was continued; 0: it was killed.
    """

    number: int
    kind: FaultKind
    planned_seconds: float
    at_seconds: float
    at: float
    target: str
    job: str
    pid: int
    start_time: int
    until: float = 0.0

    def to_plain(self) -> dict[str, Any]:
        """Return the hit as JSON values."""
        return {name: getattr(self, name) for name in type(self).__annotations__} | {"kind": self.kind.value}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Return a hit from JSON values."""
        return cls(**plain | {"kind": FaultKind(plain["kind"])})


class FaultCarrier:
    """A context manager that carries out a plan of faults in a thread of its own until its exit.

    A fault without a target, such as a kill of a worker while no job makes steps, waits until there is one. Processes
    that are still stopped at the exit are continued.

    Args:
        live: the real run, already started.
        plan: the faults.
    """

    def __init__(self, live: LiveRun, plan: FaultPlan) -> None:
        self.hits: list[Hit] = []
        """The faults that were carried out, in order."""
        self._live = live
        self._left = list(plan.faults)
        self._stopped: list[tuple[float, int, Hit, ProcessId]] = []
        """A heap of stopped processes by the monotonic time at which each is to be continued."""
        self._of_job = Counter[str]()
        self._over = threading.Event()
        self._began = 0.0
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(JOIN_SECONDS)
        self._go_on(float("inf"))

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:  # the run continues with fewer faults than planned
                structlog.get_logger().error("replay.fault_not_done", why=str(error), exc_info=error)
                return

    def _look(self) -> None:
        """Continue the stopped processes and carry out the faults that are due."""
        now = time.monotonic()
        self._go_on(now)
        for fault in [each for each in self._left if self._began + each.at_seconds <= now]:
            target = self._target(fault)
            if target is not None and self._strike(fault, target):
                self._left.remove(fault)

    def _target(self, fault: Fault) -> Target | None:
        """Return the target that the fault's draw selects among the present ones; None: there is none."""
        targets = self._targets(fault.kind)
        if fault.kind not in OF_WORKERS:
            return targets[chosen(len(targets), fault.draw)[0]] if targets else None
        jobs = sorted({each.job for each in targets if self._of_job[each.job] < MOST_OF_ONE_JOB})
        if not jobs:
            return None
        number, rest = chosen(len(jobs), fault.draw)
        gang = [each for each in targets if each.job == jobs[number]]
        return gang[chosen(len(gang), rest)[0]]

    def _targets(self, kind: FaultKind) -> Sequence[Target]:
        """Return the live, unstopped processes that a kind of fault may hit, sorted by name."""
        supervisor = self._live.supervisor
        if kind in (FaultKind.ARBITER, FaultKind.LAUNCHER):
            process = process_of(supervisor.arbiter if kind is FaultKind.ARBITER else supervisor.launcher)
            return [] if process is None else [Target(name=kind.value, job="", process=process)]
        stopped = {process for *_, process in self._stopped}
        found = [
            Target(name=each.container, job=each.job, process=each.process)
            for each in container_processes(self._live.folder)
            if each.is_master == (kind is FaultKind.APP_MASTER) and (each.is_master or each.trains)
        ]
        return sorted((each for each in found if each.process not in stopped), key=lambda each: each.name)

    def _strike(self, fault: Fault, target: Target) -> bool:
        """Send the fault's signal; return whether the process still existed."""
        at, now = time.time(), time.monotonic()
        number = signal.SIGSTOP if fault.kind is FaultKind.STOP else signal.SIGKILL
        if not target.process.signal(number):
            return False
        hit = Hit(
            number=fault.number,
            kind=fault.kind,
            planned_seconds=fault.at_seconds,
            at_seconds=now - self._began,
            at=at,
            target=target.name,
            job=target.job,
            pid=target.process.pid,
            start_time=target.process.start_time,
        )
        if fault.kind in OF_WORKERS:
            self._of_job[target.job] += 1
        if fault.kind is FaultKind.STOP:
            heapq.heappush(self._stopped, (now + fault.lasts_seconds, fault.number, hit, target.process))
        else:
            self.hits.append(hit)
        return True

    def _go_on(self, now: float) -> None:
        """Continue the stopped processes whose stop has lasted long enough."""
        while self._stopped and self._stopped[0][0] <= now:
            _, _, hit, process = heapq.heappop(self._stopped)
            process.signal(signal.SIGCONT)
            plain = hit.to_plain() | {"until": time.time()}
            self.hits.append(Hit.from_plain(plain))
