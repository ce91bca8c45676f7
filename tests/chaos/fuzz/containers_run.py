"""Sends hostile messages to a launcher's server and tells what they did."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from google.protobuf.message import Message

from chaos.fuzz.containers import KINDS, LauncherWorld, examples, settle
from chaos.fuzz.found import Found, cpu_seconds, rss_mib
from chaos.fuzz.mutation import damaged, twisted
from chaos.fuzz.strategies import drawn

LOOKS: Final = 4
"""How often memory is looked at, after the beginning."""


class ContainersRun:
    """One run against a launcher.

    Args:
        name: of the part.
        messages: how many.
        seed: all randomness follows from it but the times at which things happen.
        fault: called with each fault.
        tell: called with progress.
    """

    def __init__(
        self, name: str, messages: int, seed: int, fault: Callable[[str], None], tell: Callable[[str], None]
    ) -> None:
        self._name = name
        self._messages = messages
        self._seed = seed
        self._rng = random.Random(seed)
        self._tell = tell
        self._faults: list[str] = []
        self._hear = fault
        self._left = messages
        self._codes: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._rss: list[float] = []
        self._changed = 0
        self._examples: dict[str, list[Message]] = {method: [] for method in KINDS}
        self._bytes: list[bytes] = []

    async def run(self, folder: Path) -> Found:
        """Send them all."""
        async with LauncherWorld(folder, self._fault) as world:
            self._collect(world)
            before, began, cpu = world.witness(), time.monotonic(), cpu_seconds()
            self._rss.append(rss_mib())
            await asyncio.gather(*(self._attack(world, app, before) for app in world.attackers))
            await settle(world)
            seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
            self._changed += world.witness() != before
            for stuck in world.stuck():
                self._fault(f"a container never ends: {stuck}")
        return Found(
            part=self._name,
            messages=self._messages,
            seconds=seconds,
            cpu_seconds=cpu,
            codes=dict(self._codes.most_common()),
            kinds=dict(self._kinds.most_common()),
            faults=tuple(self._faults),
            witness_changed=self._changed,
            rss_mib=tuple(self._rss),
            steps=0,
        )

    def _fault(self, text: str) -> None:
        if len(self._faults) < 200:
            self._faults.append(text)
        self._hear(text)

    def _collect(self, world: LauncherWorld) -> None:
        for method, message in examples(world):
            self._examples[method].append(message)
        self._bytes = [content for _, content in world.real]
        for method, kind in KINDS.items():
            self._examples[method] += drawn([kind], max(20, min(300, self._messages // 500)), self._seed)

    async def _attack(self, world: LauncherWorld, app: str, before: tuple[object, ...]) -> None:
        while self._left > 0:
            self._left -= 1
            sent = self._messages - self._left
            method, content = self._message(world, app)
            answer = await world.send(method, content)
            self._codes[answer.code] += 1
            await asyncio.sleep(0)
            if sent % 100 == 0:
                self._changed += world.witness() != before
                if (what := world.too_much()) is not None:
                    self._fault(f"the arbiter would hear of this machine no more: {what}")
            if sent * LOOKS // self._messages > len(self._rss) - 1:
                self._rss.append(rss_mib())
                self._tell(f"{self._name}: {sent:,} of {self._messages:,}, {len(self._faults)} faults")

    def _message(self, world: LauncherWorld, app: str) -> tuple[str, bytes]:
        """A message made hostile before it is given its sender's name and lease, after that, or not at all."""
        rng = self._rng
        method = rng.choice(list(KINDS))
        known = self._examples[method]
        message, dice = rng.choice(known), rng.random()
        if dice < 0.3:
            self._kinds["bytes damaged"] += 1
            content = world.request(message, app, rng).SerializeToString()
            return method, damaged(content, self._bytes, rng)
        if dice < 0.6:
            self._kinds["fields changed, then addressed"] += 1
            message = world.request(twisted(message, known, rng), app, rng)
        elif dice < 0.9:
            self._kinds["addressed, then fields changed"] += 1
            message = twisted(world.request(message, app, rng), known, rng)
        else:
            self._kinds["as hypothesis or a real caller made them"] += 1
        return method, message.SerializeToString()
