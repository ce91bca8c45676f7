"""Measures the pace of slots during a run by control groups, run delays of threads, and a calibrating loop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median
from typing import Final, Self

import structlog

from eunomia.model.shapes import value
from eunomia_appmaster.launcher.container import RECORD
from eunomia_appmaster.node.control_groups import ControlGroup, CpuQuota, Throttled, of_record
from eunomia_appmaster.node.kept_files import opened
from eunomia_testbed.replay.pace import RunPace, SlotPace, Spent

SAMPLE_SECONDS: Final = 1.0
WINDOW_SECONDS: Final = 5.0
"""Seconds over which a job's CPU time is compared with its quota."""
LEAST_WINDOW_SECONDS: Final = 0.5
"""A shorter last window of a job's time on its slot is ignored."""
CALIBRATION_SECONDS: Final = 5.0
GAP_SECONDS: Final = 10.0
"""Seconds between two samples above which the machine counts as frozen."""
_LOOP_ROUNDS: Final = 40_000


@value
class Reading:
    """Counters of a container's processes at one time: CPU time, waits for a core, and throttling by the quota.

    Attributes:
        at: time of the monotonic clock, in seconds.
        times: CPU time and waits of the threads.
        stalled_seconds: seconds in which threads were ready and none ran (kernel pressure); None: unavailable.
    """

    at: float
    times: ThreadSeconds
    stalled_seconds: float | None
    throttled: Throttled
    quota: CpuQuota

    def until(self, later: Reading) -> Spent:
        """Return how the period between two readings was spent.

        Simultaneous waits of threads count once. In a quota period whose quota was used up, a thread waits for the rest
        of the period, whether the quota or another process held the thread back first; the kernel's own count of
        throttled time may be too low.
        """
        least = later.times.waited_least - self.times.waited_least
        most = later.times.waited_most - self.times.waited_most
        stalled = least
        if self.stalled_seconds is not None and later.stalled_seconds is not None:
            stalled = later.stalled_seconds - self.stalled_seconds
        periods = later.throttled.periods - self.throttled.periods
        rest_seconds = max(0.0, later.quota.period_seconds - later.quota.amount_seconds)
        return Spent(
            seconds=later.at - self.at,
            used_seconds=later.times.used - self.times.used,
            waited_seconds=min(max(stalled, least), most),
            throttled_seconds=max(later.throttled.seconds - self.throttled.seconds, periods * rest_seconds),
            cpus=later.quota.cpus,
        )


@value
class ThreadSeconds:
    """Seconds that the threads of a control group have spent since their start.

    Attributes:
        used: CPU time of all threads.
        waited_least: wait for a core if all threads waited at the same times: the longest wait of any thread.
        waited_most: wait for a core if no two threads waited at the same time: the sum of all waits.
    """

    used: float = 0.0
    waited_least: float = 0.0
    waited_most: float = 0.0


class ThreadTimes:
    """Accumulates the times of a control group's threads from one reading to the next."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        self._sum = ThreadSeconds()

    def read(self, processes: Iterable[int]) -> ThreadSeconds:
        """Return the times so far; the time of an ended thread after its last reading is missing."""
        now: dict[int, tuple[int, int]] = {}
        for pid in processes:
            now.update(_threads(pid))
        used, waits = 0, [0]
        for thread, (ran, waited) in now.items():
            ran_before, waited_before = self._last.get(thread, (0, 0))
            if ran < ran_before:  # the number has been reused for another thread
                ran_before = waited_before = 0
            used += ran - ran_before
            waits.append(waited - waited_before)
        self._last = now
        self._sum = ThreadSeconds(
            used=self._sum.used + used / 1e9,
            waited_least=self._sum.waited_least + max(waits) / 1e9,
            waited_most=self._sum.waited_most + sum(waits) / 1e9,
        )
        return self._sum


def _threads(pid: int) -> dict[int, tuple[int, int]]:
    """Return each thread's nanoseconds on a CPU and in a CPU's queue; empty: the process has ended."""
    found: dict[int, tuple[int, int]] = {}
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # this thread has ended
                used, waited, _ = (task / "schedstat").read_text(encoding="ascii").split()
                found[int(task.name)] = int(used), int(waited)
    return found


class GroupMeter:
    """Measures one container on its slot.

    Args:
        slot: number of the slot on its machine.
        group: the container's control group.
    """

    def __init__(self, slot: int, group: ControlGroup) -> None:
        self.slot = slot
        self.group = group
        self.periods: list[Spent] = []
        self._times = ThreadTimes()
        self._first: Reading | None = None
        self._last: Reading | None = None

    def sample(self) -> None:
        """Read the counters; a group without quota, processes or counters is skipped."""
        reading = self._read()
        if reading is None:
            self.finish()
            return
        if self._first is None:
            self._first = reading
        self._last = reading
        if reading.at - self._first.at >= WINDOW_SECONDS:
            self._close_window()

    def finish(self) -> None:
        """Close the last window, at the end of the container or of the run."""
        if self._first is not None and self._last is not None:
            if self._last.at - self._first.at >= LEAST_WINDOW_SECONDS:
                self._close_window()
            self._first = None

    def _close_window(self) -> None:
        if self._first is not None and self._last is not None:
            self.periods.append(self._first.until(self._last))
            self._first = self._last

    def _read(self) -> Reading | None:
        quota, throttled = self.group.cpu_quota(), self.group.throttled()
        if quota is None or throttled is None or not (processes := self.group.processes()):
            return None
        return Reading(
            at=time.monotonic(),
            times=self._times.read(processes),
            stalled_seconds=self.group.stalled_seconds(),
            throttled=throttled,
            quota=quota,
        )


class PaceMeter:
    """A context manager that measures the pace of all slots of a run's launcher in a thread.

    Args:
        state: the state folder of the run.
        reference_loop_seconds: CPU time of a calibrating loop when the profiles were measured; None: the median of this
            run's loops. A core that shares its execution units with a busy neighbour is slower than on an idle machine;
            this is not lost pace if the rates were measured with the same neighbours.
    """

    def __init__(self, state: Path, *, reference_loop_seconds: float | None = None) -> None:
        self._live = state / "launcher" / "live"
        self._reference = reference_loop_seconds
        self._meters: dict[str, GroupMeter] = {}
        self._known: set[str] = set()
        self._ended: list[GroupMeter] = []
        self._loops: list[float] = []
        self._asleep = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._measure, name="pace-meter", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def result(self) -> RunPace:
        """Return the pace so far; while the meter runs, the last seconds of running jobs are missing."""
        by_slot: dict[int, list[Spent]] = {}
        for meter in [*self._ended, *self._meters.values()]:
            if meter.periods:
                by_slot.setdefault(meter.slot, []).extend(meter.periods)
        loops = list(self._loops)
        reference = self._reference or (median(loops) if loops else None)
        mean = fmean(loops) if loops else None
        return RunPace(
            slots=tuple(SlotPace.of(slot, periods) for slot, periods in sorted(by_slot.items())),
            speed=1.0 if mean is None or reference is None else min(1.0, reference / mean),
            loops=len(loops),
            loop_seconds=mean,
            asleep_seconds=self._asleep,
        )

    def sample(self) -> None:
        """Read the counters of every container that is on a slot."""
        live = self._live_containers()
        for name in live - self._known:
            self._known.add(name)
            meter = _meter_of(self._live / name / RECORD)
            if meter is not None:
                self._meters[name] = meter
        for name, meter in list(self._meters.items()):
            if name not in live or meter.group.gone:
                self._end(name)
            else:
                meter.sample()

    def _live_containers(self) -> set[str]:
        try:
            return {link.name for link in self._live.iterdir()}
        except FileNotFoundError:  # the launcher has not begun
            return set()

    def _end(self, name: str) -> None:
        meter = self._meters.pop(name)
        meter.finish()
        self._ended.append(meter)

    def _measure(self) -> None:
        calibrated_at, before, boot = -CALIBRATION_SECONDS, time.monotonic(), _suspended_seconds()
        while not self._stop.wait(SAMPLE_SECONDS):
            now = time.monotonic()
            if now - before > GAP_SECONDS:
                self._asleep += now - before - SAMPLE_SECONDS
            before = now
            try:
                self.sample()
            except OSError as error:  # a group that is being removed must not end the measurement
                structlog.get_logger().warning("pace.not_measured", error=str(error))
            if now - calibrated_at >= CALIBRATION_SECONDS:
                self._loops.append(calibrating_loop())
                calibrated_at = now
        for name in list(self._meters):
            self._end(name)
        self._asleep += max(0.0, _suspended_seconds() - boot)


def _meter_of(record: Path) -> GroupMeter | None:
    """Return a meter for a container; None: it is an app master's, has no control group, or no readable record."""
    try:
        plain, _ = opened(record.read_bytes())
        slot = int(plain["slot"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    group = of_record(plain.get("group"))
    return GroupMeter(slot, group) if slot >= 0 and group.folders else None


def _suspended_seconds() -> float:
    """Return the seconds since boot in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def calibrating_loop() -> float:
    """Execute a fixed amount of work, and return the CPU seconds that this thread used for it."""
    started, made = time.thread_time(), 0
    for number in range(_LOOP_ROUNDS):
        made = (made * 31 + number) & 0xFFFF_FFFF
    return time.thread_time() - started
