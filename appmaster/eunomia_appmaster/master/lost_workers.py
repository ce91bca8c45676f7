"""Detects workers that no longer work although no node reports their end."""

from collections.abc import Iterator, Mapping

from eunomia_appmaster.master.gangs import Gangs
from eunomia_appmaster.master.jobs import Gang, Job
from eunomia_appmaster.master.slots import Slot
from eunomia_appmaster.runtimes.nodes import NodeRuntimes

REVOKED_SECONDS = 90.0
"""Seconds from the loss of an app's slots on an unreachable node until its workers there have ended: longer than the
grace period of a revocation, which the arbiter sends to the node itself."""


class LostWorkers:
    """Decides which workers of gangs count as lost, because their nodes are lost or unreachable.

    Args:
        runtimes: the runtimes of all nodes.
        gangs: the app's gangs, with the last statuses of their containers.
    """

    def __init__(self, runtimes: NodeRuntimes, gangs: Gangs) -> None:
        self._runtimes = runtimes
        self._gangs = gangs
        self._revoked_at: dict[tuple[int, int, str], float] = {}
        """The Unix time since which a gang has no slot on an unreachable node, by job, incarnation and node."""

    def forget(self, job: int) -> None:
        """Forget a job whose gang has ended."""
        self._revoked_at = {key: at for key, at in self._revoked_at.items() if key[0] != job}

    def of(self, job: Job, gang: Gang, slots: Mapping[int, Slot], now: float) -> Iterator[tuple[str, str]]:
        """Yield the nodes on which workers of a gang count as lost, with the reasons.

        Args:
            job: the gang's job.
            gang: the job's gang.
            slots: the app's slots, by GPU.
            now: Unix time in seconds.
        """
        for node in sorted(self._gangs.waits_for(gang)):
            if self._runtimes.is_lost(node):
                yield node, f"its node {node} was lost"
            elif self._runtimes.is_unreachable(node) and self._is_over_there(job, gang, node, slots, now):
                yield node, f"its node {node} does not answer its app master"

    def _is_over_there(self, job: Job, gang: Gang, node: str, slots: Mapping[int, Slot], now: float) -> bool:
        """Return whether workers on an unreachable node no longer work.

        Workers of a gang over several nodes stop once all others have ended. Other workers have ended some time after
        their slots were revoked.
        """
        if gang.crosses and self._gangs.waits_for(gang) == {node}:
            return True
        key = (job.number, gang.incarnation, node)
        if any(gpu in slots for gpu, on in zip(gang.gpus, gang.nodes, strict=True) if on == node):
            self._revoked_at.pop(key, None)
            return False
        return now - self._revoked_at.setdefault(key, now) >= REVOKED_SECONDS
