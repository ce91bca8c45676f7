"""A quota of disk for each app's folder: an app that takes more is suspended, with that reason, until it takes less.

What counts are the blocks that the files take, so that a sparse file of 100 GB counts for what was written of it. Links
are counted, not followed. A file that is open and has no name any more is not seen.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from eunomia_appmaster.app.cleaning import bytes_of
from eunomia_appmaster.launcher.app_masters import AppMasters
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.node import Node

log = structlog.get_logger()

LOOK_SECONDS: Final = 10.0
SHARE: Final = 0.05
"""Most of a core's time that measuring takes."""
GRACE_SECONDS: Final = 10.0
"""Seconds in which workers of an app beyond its quota may save their state and leave."""
GIB: Final = 1 << 30


class Quotas:
    """Measures the folders of live apps, and suspends apps beyond the quota.

    Args:
        node: the machine, with the apps' folders.
        containers: the workers.
        app_masters: what is suspended.
        most: bytes of each app's folder; 0: no quota.
        measure: returns the bytes that a folder takes.
    """

    def __init__(
        self,
        node: Node,
        containers: Containers,
        app_masters: AppMasters,
        most: int,
        *,
        measure: Callable[[Path], int] = bytes_of,
    ) -> None:
        self._node = node
        self._containers = containers
        self._app_masters = app_masters
        self._most = most
        self._measure = measure

    async def run(self, look_seconds: float = LOOK_SECONDS) -> None:
        """Look until cancelled; returns at once without a quota."""
        while self._most:
            began = time.thread_time()
            await self.look()
            await asyncio.sleep(max(look_seconds, (time.thread_time() - began) / SHARE))

    async def look(self) -> None:
        """Measure each live app once."""
        for app in [master.order.app for master in self._app_masters if master.lives]:
            folder = self._node.app_folder(app)
            with contextlib.suppress(OSError):  # removed meanwhile
                taken = await asyncio.to_thread(self._measure, folder)
                self._judge(app, taken, folder)

    def _judge(self, app: str, taken: int, folder: Path) -> None:
        if taken <= self._most:
            self._app_masters.hold_back(app, "")
            return
        why = (
            f"was ended: the app's folder takes {taken / GIB:.2f} GiB of disk, more than its quota of"
            f" {self._most / GIB:.2f} GiB; it goes on once {folder} takes less"
        )
        self._app_masters.hold_back(app, why)
        for container in self._containers.on_slots():
            if container.status.app == app and not container.completed:
                self._containers.stop(container, GRACE_SECONDS, "its app is beyond its quota of disk")
