"""Processes of a container that have not ended long after SIGKILL: they sleep on dead storage, and keep its slot."""

import structlog

from eunomia_appmaster.launcher.processes import ProcessId, kill
from eunomia_appmaster.node.stopped_processes import process_state
from eunomia_appmaster.node.system import System
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

UNKILLED_SECONDS = 10.0
"""Seconds after SIGKILL from which a process that has not ended is named."""
MOST_NAMED = 5
"""Most processes of a container that are named."""


class Unkilled:
    """The processes of one container that got SIGKILL and have not ended.

    Args:
        container_id: for the log.
        system: has the machine's clock.
    """

    def __init__(self, container_id: str, system: System) -> None:
        self._id, self._system = container_id, system
        self._since: dict[ProcessId, float] = {}
        self._logged: set[ProcessId] = set()

    def kill(self, found: list[ProcessId]) -> None:
        """Send SIGKILL to all processes of the container that were found; those that are missing have ended."""
        kill(found)
        now = self._system.uptime()
        self._since = {process: self._since.get(process, now) for process in found}
        for process in [one for one in self.overdue() if one not in self._logged]:
            self._logged.add(process)
            log.warning("process.not_killed", container=self._id, pid=process.pid, state=process_state(process.pid))

    def overdue(self) -> list[ProcessId]:
        """Return those that have not ended for ``UNKILLED_SECONDS``."""
        before = self._system.uptime() - UNKILLED_SECONDS
        return [process for process, since in self._since.items() if since <= before]

    def report(self, status: pb.ContainerStatus) -> list[pb.UnkilledProcess]:
        """Return the message for the arbiter about the first of them."""
        return [
            pb.UnkilledProcess(pid=one.pid, state=process_state(one.pid), app=status.app, job=status.job)
            for one in sorted(self.overdue(), key=lambda one: one.pid)[:MOST_NAMED]
        ]
