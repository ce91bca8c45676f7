"""Extends the nodes' leases before an orderly end of the arbiter, so that their work continues until the next start."""

import asyncio
import contextlib
import sqlite3
from typing import Final

import structlog

from eunomia_appmaster.service.service import Service

log = structlog.get_logger()

MOST_SECONDS: Final = 3.0
"""Maximum number of seconds to wait until the nodes have their extended leases."""
LOOK_SECONDS: Final = 0.02


async def lengthen_leases(service: Service) -> None:
    """Extend the nodes' leases, and wait at most ``MOST_SECONDS`` until the nodes that are up have them.

    The extension is journaled first: the next arbiter waits that long for a silent node.
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
