"""Simulated workers: gangs that make steps, log, save and leave when they are ordered to, in virtual time."""

import asyncio
import contextlib
import contextvars
import math
import struct
from pathlib import Path
from typing import Any

from chaos.crash_points.network import HERE
from chaos.crash_points.virtual import EPOCH_SECONDS
from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.launcher.container import NO_SLOT, Container
from eunomia_appmaster.launcher.containers import ContainerCommand, Containers
from eunomia_appmaster.launcher.errors import SlotBusyError
from eunomia_appmaster.launcher.node import Epochs, Node
from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.launcher.zygotes import Zygotes
from eunomia_appmaster.profiler.crc32c import crc32c, masked
from eunomia_appmaster.protocol import launcher_pb2 as pb

START_SECONDS = 0.1
STEP_SECONDS = 0.1
"""Of one slot; two are twice as fast."""
SAVE_SECONDS = 0.05
STEPS_PER_SAVE = 6
STEPS_PER_POINT = 3
SUSPENDED = 75
METRIC = "val/accuracy"


class Gang:
    """The workers of one incarnation, which do all together.

    Args:
        folder: of the job's runs.
        env: of its first worker.
    """

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.ranks: list[tuple[Workers, Container]] = []
        """Those that have begun, with the node of each."""
        self.whole = asyncio.Event()
        """Set once all have."""
        self.size = int(env["WORLD_SIZE"])
        self.stop_at = int(env["EUNOMIA_STOP_AT"]) if "EUNOMIA_STOP_AT" in env else None
        self.suspended = asyncio.Event()
        self.killed = False
        self._incarnation = int(env["EUNOMIA_INCARNATION"])
        self._most = int(env["EUNOMIA_MAX_ITERATIONS"])
        self._seed = int(env["EUNOMIA_SEED"])
        self._store = JobCheckpoints(folder / "checkpoints")
        self._log = folder / "logs" / f"events.out.tfevents.{1000 + self._incarnation}.box.1.0.r{self._incarnation}"
        found = self._store.begin(int(env["EUNOMIA_ATTEMPT"]), self._incarnation)
        self._saved = None if found is None else found.step
        self.step = 0 if found is None else found.step

    async def run(self, tell: Any) -> int:
        """Work until done, suspended or at the rung; return the exit code."""
        await asyncio.sleep(START_SECONDS)
        while not (self.whole.is_set() or self.suspended.is_set() or self.killed):
            await asyncio.sleep(STEP_SECONDS)
        self._write_event(b"\x1a\x0dbrain.Event:2")
        tell("hello", {})
        while not self.killed:
            if self.step >= self._most:
                await self._save(tell)
                return 0
            if not self.whole.is_set():  # it was ordered to leave before it had begun
                return SUSPENDED
            if self.suspended.is_set() or (self.stop_at is not None and self.step >= self.stop_at):
                await self._save(tell)
                tell("suspended", {"step": self.step})
                return SUSPENDED
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.suspended.wait(), STEP_SECONDS / self.size)
            self.step += 1
            if self.step % STEPS_PER_POINT == 0:
                self._log_point()
                tell("progress", {"step": self.step, "seconds_per_step": STEP_SECONDS / self.size})
            if self.step % STEPS_PER_SAVE == 0:
                await self._save(tell)
        return 1

    async def _save(self, tell: Any) -> None:
        if self._saved == self.step:
            return
        await asyncio.sleep(SAVE_SECONDS)
        if self.killed:
            return
        step = self.step

        def write(path: Path) -> None:
            path.write_text(f"state after {step}")

        self._store.save(step, write, incarnation=self._incarnation)
        self._saved = step
        tell("saved", {"step": step})

    def _log_point(self) -> None:
        value = 1.0 - math.exp(-self.step * (1 + self._seed % 7) / 60.0)
        summary = b"\x0a" + _sized(b"\x0a" + _sized(METRIC.encode()) + b"\x15" + struct.pack("<f", value))
        self._write_event(b"\x10" + _varint(self.step) + b"\x2a" + _sized(summary))

    def _write_event(self, fields: bytes) -> None:
        seconds = EPOCH_SECONDS + asyncio.get_running_loop().time()
        data = b"\x09" + struct.pack("<d", seconds) + fields
        length = struct.pack("<Q", len(data))
        record = length + struct.pack("<I", masked(crc32c(length))) + data + struct.pack("<I", masked(crc32c(data)))
        with self._log.open("ab") as file:
            file.write(record)


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


class QuickEpochs(Epochs):
    """Fencing tokens without a file: this machine is never stopped."""

    def _save(self) -> None:
        pass


class Workers(Containers):
    """The launcher's containers, whose processes are stood in for.

    Args:
        node: whose they are.
        world: starts app masters and watches what is started.
        gangs: of all nodes, by app, job and incarnation.
    """

    def __init__(self, node: Node, world: Any, gangs: dict[tuple[str, int, int], Gang]) -> None:
        super().__init__(node, Zygotes(ZygoteClient(node.folder, enabled=False, preload=())))
        self._world = world
        self._gangs = gangs

    def launch(self, container: Container, command: ContainerCommand) -> None:
        """Start the stand-in; nothing is written."""
        status = container.status
        if status.slot != NO_SLOT and self.holder(status.slot) is not None:
            raise SlotBusyError(f"slot {status.slot} must be free before a start", value="another worker")
        container.save = lambda: None  # type: ignore[method-assign]
        self._all[container.id] = container
        self._changed(container, pb.NEW)
        if status.slot == NO_SLOT:
            self._spawn_task(self._master(container, command))
            return
        gang = self._gang(container, command)
        if container.prepared is None:
            self._begin(container, gang)
        self._spawn_task(self._worker(container, gang))

    def restart(self) -> None:
        """Do as another launcher: processes run on, and what was prepared is given up."""
        self.node.launcher_id = f"launcher at {self._world.loop.time()}"
        for container in self:
            container.give_up()

    def _spawn_task(self, life: Any) -> "asyncio.Task[None]":
        """Let a worker live on when the launcher that serves the call is stopped."""
        context = contextvars.copy_context()
        context.run(HERE.set, None)
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(life, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _begin(self, container: Container, gang: Gang) -> None:
        self._world.auditor.started(container.status, self._world.gpu(self.node.name, container.status.slot))
        container.status.pid = 1
        container.status.started_at = self._world.system.unix_time()
        gang.ranks.append((self, container))
        if len(gang.ranks) == gang.size:
            gang.whole.set()

    async def _master(self, container: Container, command: ContainerCommand) -> None:
        process = self._world.start_master(container.status.app, command.env, container.folder)
        codes: list[int | None] = []
        ended = asyncio.Event()
        process.at_end += [codes.append, lambda _: ended.set()]
        container.status.pid = 1
        self._changed(container, pb.RUNNING)
        await ended.wait()
        self._completed(container, codes[0])

    async def _worker(self, container: Container, gang: Gang) -> None:
        if container.prepared is not None:
            if not await container.may_start():
                self._completed(container, SUSPENDED)
                return
            self._begin(container, gang)
        if container.status.rank == 0:

            def tell(kind: str, content: dict[str, Any]) -> None:
                for owner, rank in gang.ranks:
                    rank.heard(kind, content)
                    if kind == "progress":
                        rank.status.version = owner.news.announce(urgent=False)
                    else:
                        owner._changed(rank, pb.RUNNING, unless=pb.STOPPING)

            code = await gang.run(tell)
            for owner, rank in gang.ranks:
                owner._completed(rank, code)

    def _completed(self, container: Container, code: int | None) -> None:
        status = container.status
        if container.completed:
            return
        status.exit.SetInParent()
        if code is None:
            status.exit.signal = 9
        else:
            status.exit.code = code
        status.ended_at = self._world.system.unix_time()
        container.done.set()
        if container.killer is not None and container.killer is not asyncio.current_task():
            container.killer.cancel()
        self._changed(container, pb.COMPLETED)

    def _gang(self, container: Container, command: ContainerCommand) -> Gang:
        key = (container.status.app, container.status.job, container.status.incarnation)
        if key not in self._gangs:
            self._gangs[key] = Gang(Path(command.env["EUNOMIA_RUN_DIR"]), command.env)
        return self._gangs[key]

    def _of(self, container: Container) -> Gang:
        return self._gangs[container.status.app, container.status.job, container.status.incarnation]

    def order(self, container: Container, order: dict[str, Any]) -> bool:
        """Hand an order to the stand-in."""
        if order["order"] == "stop_at":
            self._of(container).stop_at = order.get("step")
        return True

    def _order_suspension(self, container: Container, deadline_seconds: float) -> None:
        if container.status.slot != NO_SLOT:
            self._of(container).suspended.set()
        else:
            self._world.stop_master(container.status.app)

    async def _clear(self, container: Container, *, overdue: bool = False) -> int:
        if container.completed:
            return 0
        container.status.killed |= overdue
        if container.status.slot == NO_SLOT:
            self._world.kill_master(container.status.app)
        else:
            gang = self._of(container)
            if container.prepared is not None and (self, container) not in gang.ranks:
                return 0  # it never began, and its own task ends it
            for owner, rank in gang.ranks:  # ranks of a gang whose mate is gone hang, and are killed too
                rank.status.killed |= overdue
                owner._completed(rank, None)
            gang.killed = True
        await asyncio.sleep(0)
        return 1
