"""Ends the containers on a node whose lease ends; see ``node_lease``."""

import asyncio
from typing import Final

import structlog

from eunomia_appmaster.launcher.container import NO_SLOT
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.node_lease import NodeLease

log = structlog.get_logger()

LOOK_SECONDS: Final = 1.0
LEAST_SECONDS: Final = 0.02
_SAME_SECONDS: Final = 0.1
"""Seconds; two deadlines that differ by less count as the same."""


async def keep(lease: NodeLease, containers: Containers) -> None:
    """Order workers to suspend before the lease ends, and kill the remaining ones at its end; runs until cancelled."""
    while True:
        left = lease.leaves_in_seconds or lease.left_seconds or LOOK_SECONDS
        await asyncio.sleep(min(LOOK_SECONDS, max(LEAST_SECONDS, left)))
        look(lease, containers)


def look(lease: NodeLease, containers: Containers) -> None:
    """Order workers to suspend if the lease is about to end; kill app masters at its end."""
    if lease.leaves_in_seconds > 0.0:
        return
    left = lease.left_seconds
    staying = [one for one in containers if not one.completed]
    staying = [one for one in staying if one.seconds_left is None or one.seconds_left > left + _SAME_SECONDS]
    leaving = [one for one in staying if left <= 0.0 or one.status.slot != NO_SLOT]
    for container in leaving:
        containers.stop(container, left, "the node's lease ends, since the arbiter does not answer")
    if leaving:
        log.warning("lease.ends", seconds=round(left, 1), containers=[one.id for one in leaving])
        lease.ordered_to_leave()
