"""The end of a lease in a job that changes its size live: the app master orders the lease's worker to leave.

Such a worker leaves at a step boundary, and the rest of its gang goes on. Where no order to leave has come by half of
the time until the kill, since the app master is away, the gang is ordered to suspend as any other.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog

from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

PATIENCE: Final = 0.5
"""Fraction of the time until the kill for which a worker waits for its app master's order."""


def leaves_live(container: Container) -> bool:
    """Return whether a container's worker may leave its gang while the others go on."""
    status = container.status
    return status.HasField("live") and status.hello and status.state not in (pb.STOPPING, pb.COMPLETED)


def has_not_joined(container: Container) -> bool:
    """Return whether a container's worker is a newcomer that has not been ordered to join its gang."""
    status = container.status
    return status.HasField("live") and status.live.began > 0 and status.live.ordered == 0


def is_told_to_leave(container: Container) -> bool:
    """Return whether the newest generation that a worker was ordered to enter does not have it as a member."""
    return container.change is not None and container.id not in container.change["change"]["members"]


def all_leave(mates: Collection[Container], leaving: Collection[str]) -> bool:
    """Return whether the leases of all workers of a gang end, so that none is left to go on.

    Args:
        mates: the gang's containers on slots of this machine, newcomers among them. Containers that are stopping or
            have ended do not count, such as a newcomer that is ended before it joins.
        leaving: ids of those whose leases end.
    """
    mates = [mate for mate in mates if mate.status.state not in (pb.STOPPING, pb.COMPLETED)]
    here = {mate.id for mate in mates}
    members = {each for mate in mates for each in (mate.change["change"]["members"] if mate.change else mate.members)}
    return bool(members) and members <= here and here <= set(leaving)


async def wait_for_change(container: Container, seconds: float, suspend: Callable[[], None]) -> None:
    """Call ``suspend`` unless the worker leaves, or is ordered to, in the fraction ``PATIENCE`` of its seconds."""
    try:
        await asyncio.wait_for(container.done.wait(), PATIENCE * seconds)
    except TimeoutError:
        if container.status.state != pb.STOPPING and not is_told_to_leave(container):
            log.warning("container.not_told_to_leave", container=container.id)
            suspend()
