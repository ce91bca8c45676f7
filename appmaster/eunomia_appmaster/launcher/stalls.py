"""Follows the workers' signs of life (pulses), and ends stalled ones: stacks first, then SIGCONT, SIGTERM, SIGKILL."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from eunomia_appmaster.launcher.confinement import processes_of
from eunomia_appmaster.launcher.container import NO_SLOT, Container
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.owners import rights_of
from eunomia_appmaster.launcher.processes import ProcessId
from eunomia_appmaster.launcher.stacks import thread_states, write_stacks
from eunomia_appmaster.launcher.stores import is_store
from eunomia_appmaster.node.loop_clock import LoopClock
from eunomia_appmaster.node.pulse import read_pulse
from eunomia_appmaster.node.stack_signal import STACKS_FOLDER
from eunomia_appmaster.node.stall_watch import Phase
from eunomia_appmaster.node.stopped_processes import STOPPED, StoppedTime, process_state
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

DEFAULT_GRACE_SECONDS: Final = 10.0
"""Seconds from the order to suspend to the kill of a stalled container."""
STACKS_SECONDS: Final = 30.0
"""Maximum seconds for collecting stacks; the kill follows at the latest after this time plus the grace."""
STOPPED_STORE_SECONDS: Final = 10.0
"""Seconds after which a job's store is ended if its process is stopped, since the store's clients wait for it."""
_LOOK_SECONDS: Final = 1.0
_MOST_GAP_SECONDS: Final = 3.0
_SECOND_LOOK_SECONDS: Final = 0.3
PHASES: Final = dict(zip(Phase, pb.Phase.values(), strict=True))
_MARGIN: Final = 0.9
"""Fraction of the app master's count of silent seconds that the launcher must have observed itself."""
_STORAGE = "D"
WHAT: Final = {
    pb.STALL_HUNG: "it hung",
    pb.STALL_STOPPED: "its process was stopped",
    pb.STALL_STORAGE: "it waited for storage or a device",
}


class Stalls:
    """Watches the pulses of workers (their signs of life), and ends containers that have stalled.

    Args:
        containers: containers of this node.
        grace_seconds: seconds from the order to suspend to the kill.
    """

    def __init__(self, containers: Containers, *, grace_seconds: float = DEFAULT_GRACE_SECONDS) -> None:
        self._containers = containers
        self._grace_seconds = grace_seconds
        self._clock = LoopClock(containers.node.system.uptime, most_gap=_MOST_GAP_SECONDS)
        self._heard: dict[str, tuple[object, float]] = {}
        """The last sign of life of a container's worker, and when it was seen, by container id."""
        self._stops: dict[str, StoppedTime] = {}
        """Time for which the process of an app master, or of a job's store, was stopped, by container id."""
        self._ending: set[str] = set()
        """Ids of containers whose processes are being ended, or were."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read the pulses of all workers once a second until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Read the pulses of all workers now."""
        self._clock.tick()
        self._ending = {known for known in self._ending if self._containers.get(known) is not None}
        for container in self._containers.on_slots():
            if container.completed or container.worker is None:
                self._heard.pop(container.id, None)
            elif self._read(container):
                container.status.version = self._containers.news.announce(urgent=False)
        self._look_at_masters_and_stores()

    def _look_at_masters_and_stores(self) -> None:
        running = (one for one in self._containers if one.status.slot == NO_SLOT and not one.completed)
        masters = {one.id: one.worker for one in running if one.worker is not None}
        self._stops = {known: self._stops.get(known) or StoppedTime(self._clock) for known in masters}
        for known, process in masters.items():
            self._stops[known].look(process_state(process.pid))
            container = self._containers.get(known)
            if container is not None and self._stops_long(container):
                self._containers.stop(container, 0.0, "its process was stopped, and its job goes on without it")

    def _stops_long(self, container: Container) -> bool:
        """Return whether a container is a store whose process has been stopped for so long that it must be ended."""
        waits = container.kill_at is None and is_store(container)
        return waits and self._stops[container.id].seconds >= STOPPED_STORE_SECONDS

    def app_master_hangs(self, container: Container, limit: float) -> bool:
        """Return whether an app master that does not call the arbiter hangs, judged by its process's state.

        Args:
            container: container of the app master.
            limit: seconds of silence; if its process is or was stopped, the launcher counts them from then on.
        """
        self.look()
        stops = self._stops.get(container.id)
        return stops is not None and stops.overdue(0.0, limit) is not None

    def _read(self, container: Container) -> bool:
        """Read the pulse of a worker; returns whether its status changed."""
        status, now = container.status, self._clock.now()
        with rights_of(container.account):
            pulse = read_pulse(container.worker_folder)
        phase, pulses = status.phase, status.pulses
        if pulse is not None:
            status.pulses = pulse.count
            settled = now - pulse.since >= _LOOK_SECONDS
            status.phase = PHASES[pulse.phase] if settled else pb.PHASE_STEPS
        if container.worker is not None and process_state(container.worker.pid) in STOPPED:
            status.phase = pb.PHASE_STOPPED
        elif pulse is None:
            status.phase = pb.PHASE_UNKNOWN
        news = (status.pulses, status.progress.step, status.saved_step, status.hello)
        if self._heard.get(container.id, (None, 0.0))[0] != news:
            self._heard[container.id] = news, now
        return (phase, pulses) != (status.phase, status.pulses)

    def silent_seconds(self, chosen: Sequence[Container]) -> float:
        """Return the seconds for which none of these workers has given a sign of life while this launcher ran."""
        return min((self._clock.silence(self._heard.get(one.id, (None, 0.0))[1]) for one in chosen), default=0.0)

    async def end(self, chosen: Sequence[Container], silent_seconds: float, why: str) -> bool:
        """End the workers of a stalled gang; if one has shown life since, do nothing and return False.

        Args:
            chosen: the gang's containers.
            silent_seconds: seconds without progress, as its app master has counted them.
            why: reason for the statuses.
        """
        self.look()
        left = [container for container in chosen if not container.completed]
        if not left or self.silent_seconds(left) < _MARGIN * silent_seconds:
            return False
        await self.end_now(left, why)
        return True

    async def end_now(self, chosen: Sequence[Container], why: str) -> bool:
        """Classify each container's stall, and end the containers in the background; returns whether any end is new."""
        new = [container for container in chosen if container.id not in self._ending]
        self._ending |= {container.id for container in new}
        found = {container.id: _members(container) for container in new}
        first = {container.id: _states(found[container.id]) for container in new}
        await asyncio.sleep(_SECOND_LOOK_SECONDS)
        for container in new:
            container.status.stall = _kind(first[container.id], _states(found[container.id]))
            log.warning("container.stalled", container=container.id, what=WHAT[container.status.stall], why=why)
            # This launcher may be killed before the order: the deadline outlives it.
            self._containers.kill_at(container, STACKS_SECONDS + self._grace_seconds)
            task = asyncio.create_task(self._end(container, found[container.id], why))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return bool(new)

    async def _end(self, container: Container, processes: Sequence[ProcessId], why: str) -> None:
        path = stacks_path(container)
        try:
            for process in processes:
                process.signal(signal.SIGCONT)
            system = self._containers.node.system
            head = f"{container.id}: {why}"
            app_folder = self._containers.node.app_folder(container.status.app)
            writing = asyncio.to_thread(
                write_stacks, path, container.worker_folder, processes, head, owned=app_folder, system=system
            )
            await asyncio.wait_for(writing, STACKS_SECONDS)
        except (OSError, TimeoutError) as error:
            log.warning("container.no_stacks", container=container.id, why=str(error) or "it took too long")
        finally:
            self._containers.stop(container, self._grace_seconds, why)
            if container.worker is not None:  # it may handle signals, though not its socket
                container.worker.signal(signal.SIGTERM)


def stacks_path(container: Container) -> Path:
    """Return the file for the stacks: a worker's in its run folder, an app master's in its container's folder."""
    return container.run_folder / STACKS_FOLDER / f"{container.folder.name}.txt"


def _members(container: Container) -> list[ProcessId]:
    """Return the processes of a container, the worker first."""
    found = processes_of(container)
    first = -1 if container.worker is None else container.worker.pid
    return sorted(found, key=lambda process: (process.pid != first, process.pid))


def _states(processes: Sequence[ProcessId]) -> list[str]:
    return [thread_states(process.pid) for process in processes]


def _kind(first: Sequence[str], second: Sequence[str]) -> "pb.Stall.ValueType":
    """Classify a stall by the states of the processes' threads at two moments."""
    if any(STOPPED & set(states) for states in (*first, *second)):
        return pb.STALL_STOPPED
    if any(_STORAGE in early and _STORAGE in late for early, late in zip(first, second, strict=True)):
        return pb.STALL_STORAGE
    return pb.STALL_HUNG
