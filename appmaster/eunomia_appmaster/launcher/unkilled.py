"""Processes of a container that survive SIGKILL, as they wait for storage that is gone; the slot stays occupied."""

import structlog

from eunomia_appmaster.launcher.processes import ProcessId, kill
from eunomia_appmaster.node.stopped_processes import process_state
from eunomia_appmaster.node.system import System
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

UNKILLED_SECONDS = 10.0
"""Seconds after SIGKILL from which a process that has not ended is reported."""
MOST_NAMED = 5
"""Maximum number of processes of a container that are reported by name."""


class Unkilled:
    """The processes of one container that got SIGKILL and have not ended.

    Args:
        container_id: id of the container, for the log.
        system: provides the machine's clock.
    """

    def __init__(self, container_id: str, system: System) -> None:
        self._id, self._system = container_id, system
        self._since: dict[ProcessId, float] = {}
        self._logged: set[ProcessId] = set()

    def kill(self, found: list[ProcessId]) -> None:
        """Send SIGKILL to the processes found in the container, which replace those of the previous call."""
        kill(found)
        now = self._system.uptime()
        self._since = {process: self._since.get(process, now) for process in found}
        for process in [one for one in self.overdue() if one not in self._logged]:
            self._logged.add(process)
            log.warning("process.not_killed", container=self._id, pid=process.pid, state=process_state(process.pid))

    def overdue(self) -> list[ProcessId]:
        """Return the processes that have not ended within ``UNKILLED_SECONDS`` of SIGKILL."""
        before = self._system.uptime() - UNKILLED_SECONDS
        return [process for process, since in self._since.items() if since <= before]

    def report(self, status: pb.ContainerStatus) -> list[pb.UnkilledProcess]:
        """Return the message for the arbiter about overdue processes, at most ``MOST_NAMED``."""
        return [
            pb.UnkilledProcess(pid=one.pid, state=process_state(one.pid), app=status.app, job=status.job)
            for one in sorted(self.overdue(), key=lambda one: one.pid)[:MOST_NAMED]
        ]
