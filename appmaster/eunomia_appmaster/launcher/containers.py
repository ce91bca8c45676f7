"""The life of containers: start, follow, stop, kill at the deadline, adopt after a restart of the launcher.

What happens when SIGKILL ends one of the processes:

- the worker: its shepherd writes exit.json with the signal; COMPLETED.
- the shepherd: the exit code is lost. The remaining processes of the container are killed; COMPLETED with an empty
  exit and diagnostics, which counts as failed.
- the zygote: shepherds and workers live on; the next starts wait for the next zygote, for a bounded time.
- the launcher: all live on; the next launcher adopts them from container.json, worker.json and exit.json, and keeps
  their deadlines.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from eunomia_appmaster.app.cleaning import RECORDS
from eunomia_appmaster.launcher import shepherd
from eunomia_appmaster.launcher.confinement import Confinement, drop_lost, note_lack_of_memory, processes_of
from eunomia_appmaster.launcher.container import CLAIM, EXIT, NO_SLOT, REFUSED, START, Container
from eunomia_appmaster.launcher.cores import Cores, bind
from eunomia_appmaster.launcher.errors import SlotBusyError
from eunomia_appmaster.launcher.files import read_json, write_json
from eunomia_appmaster.launcher.folders import make_folders
from eunomia_appmaster.launcher.links import link_again
from eunomia_appmaster.launcher.news import News
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.orders import OrderSocket
from eunomia_appmaster.launcher.orphans import Orphans
from eunomia_appmaster.launcher.pipes import read_to_end
from eunomia_appmaster.launcher.processes import MARK, NODE, ProcessId
from eunomia_appmaster.launcher.zygote import ZygoteKind
from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.launcher.zygotes import Zygotes
from eunomia_appmaster.node.control_groups import NoGroups
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

_ADOPTION_SECONDS = 10.0  # for a shepherd that had claimed its start to write worker.json
_STUCK_SECONDS = 5.0  # from the last process of a killed container to its shepherd's report


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCommand:
    """The command of a container: resolved ``argv[0]``, absolute paths, complete ``env``; ``zygote`` None: no fork."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdout: str
    stderr: str
    zygote: ZygoteKind | None


class Containers:
    """All containers of this node, app masters included.

    Args:
        node: the machine of the containers.
        zygotes: fork the processes that need not start by exec.
        zygote_wait_seconds: how long a start waits for the zygote before it falls back to exec.
        confinement: makes their control groups; None: they have none.
        orphans: kills processes that killed shepherds left; None: this process does not adopt orphans.
    """

    def __init__(
        self,
        node: Node,
        zygotes: Zygotes,
        *,
        zygote_wait_seconds: float = 20.0,
        confinement: Confinement | None = None,
        orphans: Orphans | None = None,
    ) -> None:
        self.node = node
        self.news = News()
        self._zygotes = zygotes
        self._zygote_wait_seconds = zygote_wait_seconds
        self._all: dict[str, Container] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}  # shepherds to be reaped by this process
        self._tasks: set[asyncio.Task[None]] = set()
        self._cores = Cores()
        self._orphans = orphans
        self._confinement = confinement or Confinement(NoGroups("not asked for"), node.machine)

    def __iter__(self) -> Iterator[Container]:
        return iter(self._all.values())

    def get(self, container_id: str) -> Container | None:
        """Return the container with an id; None if it is unknown."""
        return self._all.get(container_id)

    def on_slots(self) -> list[Container]:
        """Return the workers: all containers except app masters."""
        return [container for container in self if container.status.slot != NO_SLOT]

    def holder(self, slot: int) -> Container | None:
        """Return the container on a slot, started or about to start, that is not COMPLETED; None if there is none."""
        return next((known for known in self if known.status.slot == slot and not known.completed), None)

    def tune(self, slot: int, epoch: int, cpus: float, memory_gib: float = 0.0) -> None:
        """Change the CPUs and memory of the processes on a slot.

        The memory limit and the CPU quota are set first; then the processes are bound to as many cores, and their
        worker is ordered to use as many threads. The arbiter sees the epoch once everything is set. A refused order
        changes nothing and is tried again whenever the arbiter repeats it.
        """
        if not self._cores.is_news(slot, epoch, cpus, memory_gib):
            return
        holder = self.holder(slot)
        if not self._confinement.admits(holder, slot, cpus, memory_gib):
            return
        self._cores.set(slot, epoch, cpus, memory_gib)
        self.news.announce()
        if holder is not None:
            self._bind(holder)

    def _bind(self, container: Container) -> None:
        cores = self._cores.of(container.status.slot, container.status.epoch)
        if cores is None:
            return
        bind(processes_of(container), cores)
        if container.orders is not None:
            container.orders.send(_threads(cores))
        log.info("container.bound", container=container.id, cores=sorted(cores))

    # -- start ---------------------------------------------------------------------------------------------------------

    def launch(self, container: Container, command: ContainerCommand) -> None:
        """Write the container's files and start it; its status shows the outcome.

        Raises:
            SlotBusyError: another container still has the slot.
            OSError: its files could not be written; nothing was started.
        """
        slot = container.status.slot
        if slot != NO_SLOT and self.holder(slot) is not None:
            raise SlotBusyError(f"slot {slot} must be free before a start", value="processes that have not left yet")
        make_folders(container, self.node)
        if slot != NO_SLOT:
            container.orders = self._order_socket(container)
        self._confinement.confine(container, self._cores)
        container.save()
        (self.node.folder / "live" / container.id).symlink_to(container.folder)
        self._all[container.id] = container
        self._changed(container, pb.NEW)
        self._spawn_task(self._run(container, command))

    async def _run(self, container: Container, command: ContainerCommand) -> None:
        try:
            if container.orders is not None:
                await container.orders.serve()
            if await container.may_start() and await self._spawn(container, command):
                self._running(container)
                await self._gone(container)
        except OSError as error:  # no process, file or memory to be had
            container.status.diagnostics = f"its start failed: {error}"
        await self._finish(container)

    async def _spawn(self, container: Container, command: ContainerCommand) -> bool:
        """Start a process by fork or exec; returns whether it has started."""
        self._changed(container, pb.STARTING, unless=pb.STOPPING)
        zygote = None if command.zygote is None else self._zygotes.of(command.zygote, container.account)
        fork = zygote is not None and await zygote.ready(self._zygote_wait_seconds)
        if container.status.state == pb.STOPPING:  # while it waited
            container.never_began("stopped before its worker was started")
            return False
        if fork and await self._start_shepherd(container, command, zygote):
            return True
        if (container.folder / CLAIM).is_symlink():  # it began, and ended without a report
            return container.read_worker()
        return await self._start_shepherd(container, command, None)

    async def _start_shepherd(
        self, container: Container, command: ContainerCommand, zygote: ZygoteClient | None
    ) -> bool:
        start = {"argv": command.argv, "cwd": command.cwd, "env": command.env, "forked": zygote is not None}
        start |= {"account": None if container.account is None else container.account.change()}
        start |= {"groups": list(container.group.join_files), "stdout": command.stdout, "stderr": command.stderr}
        start |= {"lease": str(self.node.lease.path)}
        write_json(container.folder / START, start, older=False)
        report, write_end = os.pipe()
        try:
            if zygote is not None:
                if not zygote.fork(container.folder, container.mark, write_end):
                    os.close(report)
                    return False
            else:
                self._start_plainly(container, write_end)
        finally:
            os.close(write_end)
        reading = read_to_end(report)
        await (reading if zygote is None else zygote.answer(reading, self._zygote_wait_seconds))
        container.status.forked = zygote is not None
        return container.read_worker()

    def _start_plainly(self, container: Container, report_fd: int) -> None:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", shepherd.__file__, str(container.folder), str(report_fd)],
            env={MARK: container.mark, NODE: self.node.name},
            pass_fds=[report_fd],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._children[process.pid] = process

    def _running(self, container: Container) -> None:
        self._changed(container, pb.RUNNING, unless=pb.STOPPING)
        self._bind(container)
        if container.status.state == pb.STOPPING:
            self._order_suspension(container, container.seconds_left or 0.0)

    # -- follow and finish ---------------------------------------------------------------------------------------------

    async def _gone(self, container: Container) -> None:
        """Wait until the container's shepherd has ended."""
        if container.shepherd is None or not container.shepherd.alive:
            return
        try:
            fd = os.pidfd_open(container.shepherd.pid)
        except ProcessLookupError:
            return
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(fd, ended.set)
        try:
            container.seen_before = None  # this launcher sees its end
            await ended.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    async def _finish(self, container: Container) -> None:
        if container.shepherd is not None and (child := self._children.pop(container.shepherd.pid, None)):
            child.wait()
        record = read_json(container.folder / EXIT)
        left = await self._clear(container)
        status = container.status
        status.exit.SetInParent()
        status.ended_at = container.unseen_end(self.node.system.unix_time(), left)
        if record is not None:
            status.ended_at = record.pop("ended_at")
            if record.pop("lease_ended", False):
                status.killed, status.stop_reason = True, status.stop_reason or "the node's lease ended"
            status.exit.MergeFrom(pb.Exit(**record))
            note_lack_of_memory(container)
        elif refused := read_json(container.folder / REFUSED):
            status.diagnostics = f"its start failed: {refused['why']}"
        elif not status.diagnostics:
            status.diagnostics = (
                "its shepherd ended without a report, so the exit code is unknown; its remaining processes were killed"
            )
        if container.group.gone:
            log.warning("container.group_gone", container=container.id)
        container.group.remove()
        container.close()
        if container.killer is not None and container.killer is not asyncio.current_task():
            container.killer.cancel()
        container.done.set()
        self._changed(container, pb.COMPLETED)
        log.info("container.completed", container=container.id, exit=str(status.exit).strip(), killed=status.killed)

    async def _clear(self, container: Container, *, overdue: bool = False) -> int:
        """Kill processes of the container until two scans in a row find none; returns the number killed.

        Its control group is empty then, so that no unmarked process is left either.
        """
        killed, empty, pause = 0, 0, 0.005
        while empty < 2:
            found = processes_of(container)
            full = not container.group.is_empty()
            container.status.killed |= overdue and (bool(found) or full)
            if full:
                container.group.kill()
            container.unkilled.kill(found)
            killed += len(found)
            lost = self._kill_orphans()
            empty = 0 if found or full or lost else empty + 1
            if empty < 2:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.2)
        return killed

    def _kill_orphans(self) -> int:
        if self._orphans is None:
            return 0
        own = set(self._children) | self._zygotes.process_ids
        self._orphans.reap(own)
        return self._orphans.kill(own, {known.mark for known in self if not known.completed})

    # -- stop ----------------------------------------------------------------------------------------------------------

    def stop(self, container: Container, deadline_seconds: float, reason: str) -> None:
        """Order a container to suspend, and kill it at the deadline; of several deadlines the earliest applies."""
        if container.completed:
            return
        kill_at = self.node.system.uptime() + deadline_seconds
        if container.kill_at is None or kill_at < container.kill_at:
            container.kill_at = kill_at
            self._watch_deadline(container)
        self.suspend(container, deadline_seconds, reason)

    def suspend(self, container: Container, deadline_seconds: float, reason: str) -> None:
        """Order a container to suspend, once, without a kill at the deadline; no order if there is no time to obey."""
        if container.completed or container.status.state == pb.STOPPING:
            self._changed(container)
            return
        container.status.stop_reason = reason
        self._changed(container, pb.STOPPING)
        container.give_up()
        if deadline_seconds > 0:
            self._order_suspension(container, deadline_seconds)

    def kill_at(self, container: Container, deadline_seconds: float) -> None:
        """Set the deadline at which a container is killed, in seconds from now, without an order to suspend."""
        if container.completed:
            return
        kill_at = self.node.system.uptime() + deadline_seconds
        if container.kill_at is None or kill_at < container.kill_at:
            container.kill_at = kill_at
            self._changed(container)
            self._watch_deadline(container)
            container.give_up()

    def order(self, container: Container, order: dict[str, Any]) -> bool:
        """Send an order, except ``suspend``, to the worker; returns whether the worker is connected."""
        if container.keeps(order):
            self._changed(container)
        return container.orders is not None and container.orders.send(order)

    def _order_suspension(self, container: Container, deadline_seconds: float) -> None:
        order = {"order": "suspend", "deadline_seconds": deadline_seconds}
        if container.orders is not None and container.orders.send(order):
            return
        if container.worker is not None:
            container.worker.signal(signal.SIGTERM)

    def _watch_deadline(self, container: Container) -> None:
        if container.killer is not None:
            container.killer.cancel()
        container.killer = self._spawn_task(self._kill_when_due(container))

    async def _kill_when_due(self, container: Container) -> None:
        await asyncio.sleep(container.seconds_left or 0.0)
        quiet_since = self.node.system.uptime()
        while not container.completed:  # again and again: a start may have been under way
            if await self._clear(container, overdue=True):
                quiet_since = self.node.system.uptime()
            if container.shepherd is not None and self.node.system.uptime() - quiet_since > _STUCK_SECONDS:
                container.shepherd.signal(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(container.done.wait(), 0.2)

    # -- reports of workers --------------------------------------------------------------------------------------------

    def _order_socket(self, container: Container) -> OrderSocket:
        def heard(kind: str, content: dict[str, Any]) -> None:
            container.heard(kind, content)
            if kind == "progress":  # once a second: not worth a file
                container.status.version = self.news.announce(urgent=False)
            else:
                self._changed(container)

        def joined() -> list[dict[str, Any]]:
            orders = container.standing_orders()
            cores = self._cores.of(container.status.slot, container.status.epoch)
            orders += [] if cores is None else [_threads(cores)]
            if container.status.state == pb.STOPPING:
                orders.append({"order": "suspend", "deadline_seconds": container.seconds_left or 0.0})
            return orders

        uid = None if container.account is None else container.account.uid
        return OrderSocket(container.folder, heard, joined, uid=uid)

    # -- adoption ------------------------------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Adopt the containers of an earlier launcher from their files."""
        live = self.node.folder / "live"
        link_again(live, self.node.apps, self.node.folder / RECORDS, self.node.name)
        for link in sorted(live.iterdir()):
            if not link.is_symlink():  # damaged, and no process of its container is left
                log.error("launcher.damaged_link", container=link.name)
                link.unlink()
                continue
            container = Container.load(link, system=self.node.system)
            if container is None:
                drop_lost(link)
                continue
            container.folder, container.seen_before = link.resolve(), self.node.seen_before
            self._all[container.id] = container
            container.status.version = self.news.announce()
            if not container.completed:
                log.info("container.adopted", container=container.id, pid=container.status.pid)
                self._adopt(container)
        self._confinement.sweep(list(self))

    def _adopt(self, container: Container) -> None:
        if container.status.slot != NO_SLOT:
            container.orders = self._order_socket(container)
        if container.kill_at is not None:
            self._watch_deadline(container)
        self._spawn_task(self._follow_adopted(container))

    async def _follow_adopted(self, container: Container) -> None:
        if container.orders is not None:
            await container.orders.serve()
        if container.worker is None:
            await self._await_claimant(container)
        if container.worker is not None:
            self._changed(container, pb.RUNNING, unless=pb.STOPPING)
            await self._gone(container)
        await self._finish(container)

    async def _await_claimant(self, container: Container) -> None:
        """Prevent the start if no shepherd has claimed it; else wait for the worker's worker.json."""
        claim = container.folder / CLAIM
        with contextlib.suppress(FileExistsError):
            claim.symlink_to("launcher")
        try:
            pid, _, start_time = str(claim.readlink()).partition(":")
        except OSError:  # no link any more: what has begun is found by its mark, and killed
            return
        if not (pid.isdecimal() and start_time.isdecimal()):  # a launcher's claim: the start is prevented
            container.never_began("the launcher was killed before its worker was started")
            return
        claimant = ProcessId(int(pid), int(start_time))
        deadline = self.node.system.uptime() + _ADOPTION_SECONDS
        while not container.read_worker() and claimant.alive and self.node.system.uptime() < deadline:
            await asyncio.sleep(0.02)
        container.read_worker()  # the shepherd may have written it just before its end

    def forget(self, keep_seconds: float) -> None:
        """Remove containers that ended more than ``keep_seconds`` ago from the list; their folders stay."""
        for pid in [pid for pid, child in self._children.items() if child.poll() is not None]:
            del self._children[pid]  # of a start that failed
        horizon = self.node.system.unix_time() - keep_seconds
        for container in [known for known in self if known.completed and known.status.ended_at < horizon]:
            del self._all[container.id]
            (self.node.folder / "live" / container.id).unlink(missing_ok=True)

    # -- bookkeeping ---------------------------------------------------------------------------------------------------

    def slot_states(self) -> list[pb.SlotState]:
        """Return the present state of every slot of this node."""
        states = []
        for slot in self.node.machine.slots:
            epochs = self.node.epochs[slot.index]
            holder = self.holder(slot.index)
            state = pb.SlotState(
                slot=slot.index,
                highest_epoch=epochs.highest,
                closed_epoch=epochs.closed,
                busy=holder is not None,
                tuned_epoch=self._cores.epoch(slot.index),
                not_tuned=self._confinement.refusals.get(slot.index, ""),
                unkilled=() if holder is None else holder.unkilled.report(holder.status),
            )
            states.append(state)
        return states

    def _changed(
        self,
        container: Container,
        state: "pb.ContainerState.ValueType | None" = None,
        *,
        unless: "pb.ContainerState.ValueType | None" = None,
    ) -> None:
        if state is not None and container.status.state != unless:
            container.status.state = state
        container.status.version = self.news.announce()
        try:
            container.save()
        except OSError as error:  # a full disk must not keep a slot from being given back
            log.error("container.not_saved", container=container.id, error=str(error))

    def _spawn_task(self, life: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(life)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("launcher.fault", exc_info=error)


def _threads(cores: frozenset[int]) -> dict[str, Any]:
    """Return the order that sets a worker's number of threads to its number of cores."""
    return {"order": "threads", "count": len(cores)}
