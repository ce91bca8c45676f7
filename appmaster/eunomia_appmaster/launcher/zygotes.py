"""The zygotes of a launcher: one for workers under its own account, and one per account that jobs run under.

A zygote keeps the launcher's account, as its shepherds do; a worker that it forks changes to its own account before it
runs any code. Each zygote serves one account, so that workers of two users share neither memory nor its layout, and it
has nothing of the launcher's environment but the variables that a start of Python needs.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.node.accounts import Account
from eunomia_appmaster.node.loop_clock import LoopClock

log = structlog.get_logger()

IDLE_SECONDS: Final = 600.0
"""Seconds without a start after which an account's zygote is ended, since it takes about 100 MiB."""
_LOOK_SECONDS: Final = 10.0


class Zygotes:
    """Provides the zygote for a worker, and starts it if there is none.

    Args:
        own: the zygote for workers without an account.
        of_account: creates a zygote for an account without starting it; None: workers of accounts start by exec.
    """

    def __init__(self, own: ZygoteClient, of_account: Callable[[Account], ZygoteClient] | None = None) -> None:
        self._own = own
        self._of_account = of_account
        self._others: dict[int, ZygoteClient] = {}
        self._used: dict[int, float] = {}
        self._clock = LoopClock(most_gap=6 * _LOOK_SECONDS)

    def __iter__(self) -> Iterator[ZygoteClient]:
        return iter((self._own, *self._others.values()))

    def of(self, account: Account | None) -> ZygoteClient | None:
        """Return the zygote for an account, which may not be ready; None: the account has none."""
        if account is None:
            return self._own
        if self._of_account is None:
            return None
        self._used[account.uid] = self._clock.now()
        if account.uid not in self._others:
            made = self._others[account.uid] = self._of_account(account)
            made.start()
            log.info("zygote.of_account", login=account.login)
        return self._others[account.uid]

    def start(self) -> None:
        """Start the zygote for workers without an account in the background."""
        self._own.start()

    @property
    def process_ids(self) -> set[int]:
        """Return the ids of child processes that the launcher started for the zygotes and waits for."""
        return {pid for each in self for pid in each.process_ids}

    async def end_idle(self, idle_seconds: float = IDLE_SECONDS) -> None:
        """End zygotes of accounts that were idle for ``idle_seconds``, until cancelled; forked processes run on."""
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
