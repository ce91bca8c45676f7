"""The container statuses that a node's launcher has reported."""

from collections.abc import Iterator
from typing import Final

from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.parts import detached

ENDED_KEPT: Final = 256
"""Maximum number of ended containers whose last version is kept, to recognise reports that arrive out of order."""


class ContainerStatuses:
    """The last status of each of a node's containers that has not ended; iteration yields the statuses."""

    def __init__(self) -> None:
        self._live: dict[str, pb.ContainerStatus] = {}
        self._ended: dict[str, int] = {}
        """Version of the last status of an ended container, by container."""

    def __iter__(self) -> Iterator[pb.ContainerStatus]:
        return iter(self._live.values())

    def hear(self, status: pb.ContainerStatus) -> bool:
        """Apply a reported status; returns whether it is newer than the container's last one."""
        name = status.container_id
        known = self._live.get(name)
        if status.version <= (self._ended.get(name, -1) if known is None else known.version):
            return False
        if status.state != pb.COMPLETED:
            self._live[name] = detached(status)
            return True
        self._live.pop(name, None)
        self._ended[name] = status.version
        if len(self._ended) > ENDED_KEPT:
            del self._ended[next(iter(self._ended))]
        return True
