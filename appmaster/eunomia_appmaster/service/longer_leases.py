"""Before an orderly end of the arbiter its nodes get longer leases, so that their work lasts until the next one."""

import asyncio
import contextlib
import sqlite3
from typing import Final

import structlog

from eunomia_appmaster.service.service import Service

log = structlog.get_logger()

MOST_SECONDS: Final = 3.0
"""In which nodes hear of their longer leases before the arbiter ends."""
LOOK_SECONDS: Final = 0.02


async def lengthen_leases(service: Service) -> None:
    """Give the nodes longer leases, and wait until those that answer have them.

    The journal has them first: the next arbiter waits as long for a node that it does not hear.
    """
    nodes = service.nodes
    leased = [node for node in nodes if nodes.is_leased(node) and node.is_up]
    if not leased:
        return
    try:
        async with service.driver.lock if service.decides else contextlib.nullcontext():
            nodes.leases.lengthen()
    except (sqlite3.Error, OSError) as error:  # as on a full disk
        log.error("leases.not_lengthened", error=str(error))
        return
    for node in leased:
        node.stir()
    for _ in range(round(MOST_SECONDS / LOOK_SECONDS)):
        if all(node.lease.seconds == nodes.leases.seconds for node in leased):
            break
        await asyncio.sleep(LOOK_SECONDS)
    log.info("leases.lengthened", seconds=nodes.leases.seconds, nodes=len(leased))
