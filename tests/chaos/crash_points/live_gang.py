"""A simulated gang that changes live: its workers speak the words of live changes, in virtual time."""

import asyncio
import json
from pathlib import Path
from typing import Any

from chaos.crash_points.gangs import START_SECONDS, STEP_SECONDS, STEPS_PER_POINT, STEPS_PER_SAVE, SUSPENDED, Gang
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.protocol import launcher_pb2 as pb

FORM_SECONDS = 0.05
"""From the boundary to the first step of another generation."""
BUILD_SECONDS = "BUILD_SECONDS"
"""Variable of ``[job.env]``: seconds in which the first workers of a job build what they train."""


class LiveGang(Gang):
    """The workers of one incarnation; each generation's make their steps together.

    Like those of the helper, the first workers form a generation as they begin, build what they train, and read orders
    again at the boundary before their first step. Where slots were taken back meanwhile, they leave its workers there.

    Args:
        folder: of the job's runs.
        env: of its first worker.
    """

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        super().__init__(folder, env)
        self.generation = 0
        self.members: tuple[str, ...] = tuple(json.loads(env["EUNOMIA_MEMBERS"]))
        self.store_lives = True
        self.suspends: set[str] = set()
        """Workers that are ordered to suspend: a newcomer alone, or one for all."""
        self.sizes: list[tuple[int, int]] = []
        """Steps done and number of members, as each generation made its first step."""
        self._build_seconds = float(env.get(BUILD_SECONDS, "0"))
        self._workers: dict[str, tuple[Any, Container]] = {}
        self._entered = self._began = False

    async def live(self, owner: Any, container: Container) -> None:
        """Live as one worker, to the end of it; the first one that begins makes the steps of all."""
        self._workers[container.id] = owner, container
        await asyncio.sleep(START_SECONDS)
        if container.completed:
            return
        self._tell(container.id, "hello", {})
        if container.id not in self.members:
            self._tell(container.id, "ready", {"generation": container.status.live.began})
            while container.id not in self.members and not container.completed:
                if container.id in self.suspends:
                    owner._completed(container, SUSPENDED)
                await asyncio.sleep(STEP_SECONDS / 4)
        elif not self._began:
            self._began = True
            await self._train()

    # -- the gang

    async def _train(self) -> None:
        while not self.whole.is_set():
            if not self._living():
                return
            await asyncio.sleep(STEP_SECONDS)
        if not await self._form():
            return
        await asyncio.sleep(self._build_seconds)
        self._write_event(b"\x1a\x0dbrain.Event:2")
        while living := self._living():
            if self.step >= self._most:
                await self._save(self._main)
                self._end(living, 0)
            elif self.suspends & set(living) or (self.stop_at is not None and self.step >= self.stop_at):
                await self._save(self._main)
                for name in living:
                    self._tell(name, "suspended", {"step": self.step})
                self._end(living, SUSPENDED)
            elif (change := self._agreed(living)) is not None:
                await self._change(change)
            elif len(living) < len(self.members):
                for name in living:
                    if self._workers[name][1].status.live.broken != self.generation or not self.generation:
                        self._tell(name, "broken", {"generation": self.generation})
                if not self.sizes:  # a gang that has never begun does not go on without a worker
                    self._end(living, SUSPENDED)
                await asyncio.sleep(STEP_SECONDS)
            else:
                await self._make_step()

    async def _form(self) -> bool:
        """Form the newest generation of which all have heard; returns whether there is one that goes on."""
        while living := self._living():
            if self.suspends & set(living) or not self.store_lives:
                self._end(living, SUSPENDED)
            elif (change := self._agreed(living)) is not None:
                await self._change(change)
            elif len(living) == len(self.members):
                return True
            else:
                await asyncio.sleep(STEP_SECONDS)  # the app master orders a first gang that lacks a worker to leave
        return False

    async def _make_step(self) -> None:
        if not self._entered:
            self._entered = True
            self.sizes.append((self.step, len(self.members)))
            report = {"generation": self.generation, "size": len(self.members), "step": self.step, "at": 1.0}
            self._main("resized", report | {"join_seconds": STEP_SECONDS, "pause_seconds": FORM_SECONDS})
        await asyncio.sleep(STEP_SECONDS / len(self.members))
        if len(self._living()) < len(self.members):
            return  # the step is lost with a worker
        self.step += 1
        if self.step % STEPS_PER_POINT == 0:
            self._log_point()
            seconds = STEP_SECONDS / len(self.members)
            self._main("progress", {"step": self.step, "seconds_per_step": seconds})
        if self.step % STEPS_PER_SAVE == 0:
            await self._save(self._main)

    def _agreed(self, living: list[str]) -> tuple[int, tuple[str, ...]] | None:
        """The change that all living members have heard of, and whose newcomers wait; None: there is none."""
        orders = [(self._workers[name][1].change or {}).get("change", {}) for name in living]
        newest = min(order.get("generation", 0) for order in orders)
        if newest <= self.generation or not self.store_lives:
            return None
        members = next(tuple(order["members"]) for order in orders if order["generation"] == newest)
        here = [each for each in members if each in self._workers and not self._workers[each][1].completed]
        return (newest, members) if len(here) == len(members) else None

    async def _change(self, change: tuple[int, tuple[str, ...]]) -> None:
        await asyncio.sleep(FORM_SECONDS)
        before, (self.generation, members) = self._living(), change
        for name in before:
            if name not in members:
                self._tell(name, "leaving", {"generation": self.generation})
                self._end([name], SUSPENDED)
        self.members, self._entered = members, False

    def _living(self) -> list[str]:
        return [each for each in self.members if each in self._workers and not self._workers[each][1].completed]

    # -- what they say

    def _main(self, kind: str, content: dict[str, Any]) -> None:
        self._tell(self.members[0], kind, content)

    def _tell(self, name: str, kind: str, content: dict[str, Any]) -> None:
        owner, container = self._workers[name]
        if container.completed:
            return
        container.heard(kind, content)
        if kind == "progress":
            container.status.version = owner.news.announce(urgent=False)
        else:
            owner._changed(container, pb.RUNNING, unless=pb.STOPPING)

    def _end(self, names: list[str], code: int) -> None:
        for name in names:
            owner, container = self._workers[name]
            owner._completed(container, code)
