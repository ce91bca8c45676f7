"""The zygotes of a launcher: one for workers and one for app masters under its own account, one per other account.

App masters share the import of Eunomia by their zygote. An app master under another account starts by exec, since it
may be the only one of its account, for which a zygote would save nothing.

A zygote keeps the launcher's account, as its shepherds do; a worker that it forks changes to its own account before it
runs any code. Each zygote serves one account, so that workers of two users share neither memory nor its layout, and it
has nothing of the launcher's environment but the variables that a start of Python needs.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from eunomia_appmaster.launcher.zygote import ZygoteKind
from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.node.accounts import Account
from eunomia_appmaster.node.loop_clock import LoopClock

IDLE_SECONDS: Final = 600.0
"""Seconds without a start after which a zygote is ended, but for that of workers without an account."""
_LOOK_SECONDS: Final = 10.0
_APP_MASTERS: Final = -1  # no account has this number


class Zygotes:
    """Provides the zygote for a worker, and starts it if there is none.

    Args:
        own: the zygote for workers without an account.
        of_account: creates a zygote for an account without starting it; None: workers of accounts start by exec.
        of_app_masters: creates the zygote for app masters without starting it; None: app masters start by exec.
    """

    def __init__(
        self,
        own: ZygoteClient,
        of_account: Callable[[Account], ZygoteClient] | None = None,
        of_app_masters: Callable[[], ZygoteClient] | None = None,
    ) -> None:
        self._own = own
        self._of_account = of_account
        self._of_app_masters = of_app_masters
        self._others: dict[int, ZygoteClient] = {}
        """Zygotes by user id of their account; the one for app masters under ``_APP_MASTERS``."""
        self._used: dict[int, float] = {}
        self._clock = LoopClock(most_gap=6 * _LOOK_SECONDS)

    def __iter__(self) -> Iterator[ZygoteClient]:
        return iter((self._own, *self._others.values()))

    def of(self, kind: ZygoteKind, account: Account | None) -> ZygoteClient | None:
        """Return the zygote for workers or app masters of an account, which may not be ready; None: there is none."""
        if kind is ZygoteKind.APP_MASTERS:
            ours = self._of_app_masters if account is None else None  # those of accounts start by exec
            return None if ours is None else self._other(_APP_MASTERS, ours)
        if account is None:
            return self._own
        if self._of_account is None:
            return None
        return self._other(account.uid, partial(self._of_account, account))

    def _other(self, key: int, make: Callable[[], ZygoteClient]) -> ZygoteClient:
        self._used[key] = self._clock.now()
        if key not in self._others:
            made = self._others[key] = make()
            made.start()
        return self._others[key]

    def start(self, *, app_masters: bool) -> None:
        """Start, in the background, the zygote for workers without an account, and with ``app_masters`` theirs, too."""
        self._own.start()
        if app_masters:
            self.of(ZygoteKind.APP_MASTERS, None)

    @property
    def process_ids(self) -> set[int]:
        """Return the ids of child processes that the launcher started for the zygotes and waits for."""
        return {pid for each in self for pid in each.process_ids}

    async def end_idle(self, idle_seconds: float = IDLE_SECONDS) -> None:
        """End zygotes that were idle for ``idle_seconds``, except the one for own workers, until cancelled."""
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, idle_seconds))
            self._clock.tick()
            idle = [uid for uid, used in self._used.items() if self._clock.silence(used) > idle_seconds]
            for uid in idle:
                del self._used[uid]
                await self._others.pop(uid).close()

    async def close(self) -> None:
        """End all zygotes; processes that they forked keep running."""
        for each in self:
            await each.close()
