"""The zygotes of a launcher: one for workers under its own account, and one for each account that jobs run under.

A zygote keeps the launcher's account, since its shepherds do; a worker that it forks changes to its own account before
its first line. It serves one account, so that workers of two users share neither memory nor its layout, and it holds
nothing of the launcher's environment but what a start of Python needs.
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
"""Seconds without a start after which the zygote of an account is ended; it takes some 100 MiB."""
_LOOK_SECONDS: Final = 10.0


class Zygotes:
    """Finds the zygote for a worker, and starts it where there is none.

    Args:
        own: for workers without an account.
        of_account: makes one for an account, not yet started; None: workers of accounts start by exec.
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
        """Return the zygote for an account, which may not be ready; None: there is none for it."""
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
        """Start the one without an account in the background."""
        self._own.start()

    @property
    def process_ids(self) -> set[int]:
        """Process IDs of children that the launcher started for them and waits for."""
        return {pid for each in self for pid in each.process_ids}

    async def end_idle(self, idle_seconds: float = IDLE_SECONDS) -> None:
        """End zygotes of accounts that were not used for so long, until cancelled; what they forked lives on."""
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, idle_seconds))
            self._clock.tick()
            idle = [uid for uid, used in self._used.items() if self._clock.silence(used) > idle_seconds]
            for uid in idle:
                del self._used[uid]
                await self._others.pop(uid).close()

    async def close(self) -> None:
        """End them all; what they forked lives on."""
        for each in self:
            await each.close()
