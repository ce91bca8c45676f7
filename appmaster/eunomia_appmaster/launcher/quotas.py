"""Disk quotas of each app's folder and of all apps of a user: above a quota, apps are suspended until they use less.

The blocks that files occupy count, so that a sparse file of 100 GB counts only its written parts. Links count, but not
their targets. An open file without a name is not seen.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from eunomia_appmaster.app.cleaning import TooDeepError, bytes_of
from eunomia_appmaster.app.sizes import size_text
from eunomia_appmaster.launcher.app_masters import AppMasters
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

LOOK_SECONDS: Final = 10.0
SHARE: Final = 0.05
"""Largest share of one core's time that measuring takes."""
GRACE_SECONDS: Final = 10.0
"""Seconds in which workers of an app above its quota may save their state and exit."""


class Quotas:
    """Measures the folders of live apps, and suspends apps above a quota.

    Args:
        node: the machine, with the folders of all apps and the quotas.
        containers: the workers.
        app_masters: the app masters, through which apps are suspended.
        measure: returns the bytes that a folder takes.

    Attributes:
        of_users: limits on all folders of a user, from the arbiter's last answer; None: there was no answer yet, so no
            suspended app continues.
    """

    def __init__(
        self,
        node: Node,
        containers: Containers,
        app_masters: AppMasters,
        *,
        measure: Callable[[Path], int] = bytes_of,
    ) -> None:
        self._node = node
        self._containers = containers
        self._app_masters = app_masters
        self._measure = measure
        self.of_users: tuple[pb.DiskLimit, ...] | None = None
        self._spent = 0.0
        """CPU seconds that the present look has taken."""

    def limit_users(self, limits: Sequence[pb.DiskLimit]) -> None:
        """Replace all users' limits by those of the arbiter's last answer."""
        self.of_users = tuple(limits)

    async def run(self, look_seconds: float = LOOK_SECONDS) -> None:
        """Measure every ``look_seconds``, or less often to bound the CPU time that it takes, until cancelled."""
        while True:
            self._spent = 0.0
            await self.look()
            await asyncio.sleep(max(look_seconds, self._spent / SHARE))

    async def look(self) -> None:
        """Measure once: each live app if there is a quota of apps, and all apps of users with a limit."""
        live = [master.order.app for master in self._app_masters if master.lives]
        why: dict[str, str] = {}
        for limit in self.of_users or ():
            why |= dict.fromkeys(limit.apps, await self._beyond(limit))
        for app in live:
            most = self._node.limits.app_bytes
            size = await self._size(app) if most else 0
            if size is not None and size > most > 0:
                words = f"the app's folder takes {size_text(size)} of disk, more than its quota of {size_text(most)}"
                why[app] = f"{words}; it goes on once {self._node.app_folder(app)} takes less"
        for app in live:
            if why.get(app) or self.of_users is not None:
                self._judge(app, why.get(app, ""))

    async def _beyond(self, limit: pb.DiskLimit) -> str:
        """Return a message about the use of a user's apps above the user's limit; empty: they are within the limit."""
        sizes = [await self._size(app) for app in limit.apps]
        taken = sum(size for size in sizes if size is not None)
        if taken <= limit.bytes:
            return ""
        words = f"the folders of {limit.user}'s apps take {size_text(taken)} of disk, more than its limit of"
        remedy = "remove files in them, or ask the operator for `eunomia clean`, which removes those of ended apps"
        return f"{words} {size_text(limit.bytes)}; it goes on once they take less: {remedy}"

    async def _size(self, app: str) -> float | None:
        """Return the size of an app's folder in bytes; infinite: nested too deeply; None: it cannot be read."""
        try:
            return await asyncio.to_thread(self._measured, self._node.app_folder(app))
        except TooDeepError:
            return math.inf
        except OSError:  # removed meanwhile
            return None

    def _measured(self, folder: Path) -> int:
        """Measure a folder, in a thread of its own, and add the CPU time that it takes."""
        began = time.thread_time()
        try:
            return self._measure(folder)
        finally:
            self._spent += time.thread_time() - began

    def _judge(self, app: str, why: str) -> None:
        if not why:
            self._app_masters.hold_back(app, "")
            return
        self._app_masters.hold_back(app, f"was ended: {why}")
        for container in self._containers.on_slots():
            if container.status.app == app and not container.completed:
                self._containers.stop(container, GRACE_SECONDS, "its app is beyond its quota of disk")
