"""App masters: started by the arbiter's order as containers without a slot, restarted with growing pauses, adopted."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import structlog
from google.protobuf import json_format

from eunomia_appmaster.launcher.container import NO_SLOT, Container
from eunomia_appmaster.launcher.containers import ContainerCommand, Containers
from eunomia_appmaster.launcher.files import read_json, write_json
from eunomia_appmaster.launcher.gangs import base_environment, check_name
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.processes import MARK
from eunomia_appmaster.launcher.zygote_client import interpreter
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.tokens import node_token

log = structlog.get_logger()

MAX_RESTARTS = 3
"""Greatest number of consecutive restarts without a healthy attempt and without progress of the app's workers."""
HEALTHY_SECONDS = 120.0
"""An attempt that ran this long resets the count of restarts."""
HASTY_SECONDS = 10.0
"""An attempt shorter than this doubles the next pause."""
MOST_PAUSE_SECONDS = 30.0
"""The longest pause before a restart."""
MOST_ENDED = 1000
"""Number of ended app masters that are kept, so that the arbiter learns of each end after any absence."""


class AppMasterRecord:
    """One app's master over all its attempts; its record survives the launcher.

    Attributes:
        restarts: since the last attempt that was healthy, or during which the app's workers made progress.
        hasty: attempts in a row that ended within ``HASTY_SECONDS``.
    """

    def __init__(self, order: pb.AppMasterOrder, status: pb.AppMasterStatus, restarts: int, path: Path) -> None:
        self.order = order
        self.status = status
        self.restarts = restarts
        self.hasty = 0
        self.container: Container | None = None
        self.stopped = asyncio.Event()
        self._path = path

    @property
    def final(self) -> bool:
        """Whether no further attempt follows this end."""
        exit_code = self.status.exit.code if self.status.exit.HasField("code") else None
        allowed = self.order.max_restarts if self.order.HasField("max_restarts") else MAX_RESTARTS
        return self.stopped.is_set() or exit_code == 0 or self.restarts >= allowed

    def judge(self, lasted: float, *, went_further: bool) -> None:
        """Evaluate an ended attempt: a healthy one resets the count of restarts, short ones lengthen the pause."""
        self.hasty = self.hasty + 1 if lasted < HASTY_SECONDS else 0
        if lasted >= HEALTHY_SECONDS or went_further:
            self.restarts = 0

    def pause_seconds(self, first: float) -> float:
        """Return the seconds to wait before the next attempt, where the first pause is ``first``."""
        return min(MOST_PAUSE_SECONDS, first * 2.0 ** min(max(self.hasty - 1, 0), 30))

    def save(self) -> None:
        """Write the record; the token is in a file of its own."""
        record = {
            "order": json_format.MessageToDict(self.order, preserving_proto_field_name=True),
            "status": json_format.MessageToDict(self.status, preserving_proto_field_name=True),
            "restarts": self.restarts,
            "hasty": self.hasty,
        }
        write_json(self._path, record)

    def drop(self) -> None:
        """Delete the record."""
        self._path.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> "AppMasterRecord | None":
        """Read the record, if there is one."""
        record = read_json(path)
        if record is None:
            return None
        order = json_format.ParseDict(record["order"], pb.AppMasterOrder())
        status = json_format.ParseDict(record["status"], pb.AppMasterStatus())
        master = cls(order, status, record["restarts"], path)
        master.hasty = record.get("hasty", 0)
        if status.state == pb.APP_MASTER_STOPPING:
            master.stopped.set()
        return master


class AppMasters:
    """All app masters of this node.

    Args:
        node: the machine of the app masters.
        containers: runs them.
        arbiter: its address, passed to each app master.
        pause_seconds: before the first restart; doubles with each attempt that ends soon, up to
            ``MOST_PAUSE_SECONDS``.
    """

    def __init__(self, node: Node, containers: Containers, arbiter: str, *, pause_seconds: float = 1.0) -> None:
        self._node = node
        self._containers = containers
        self._arbiter = arbiter
        self._pause_seconds = pause_seconds
        self._all: dict[str, AppMasterRecord] = {}
        self._lives: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[AppMasterRecord]:
        return iter(self._all.values())

    def start(self, order: pb.AppMasterOrder) -> None:
        """Carry out the arbiter's order to start an app master, once."""
        check_name(order.app, "an app's name")
        known = self._all.get(order.app)
        if known is not None and known.status.attempt >= order.attempt:
            return
        self._write_tokens(order)
        kept = pb.AppMasterOrder()
        kept.CopyFrom(order)
        kept.ClearField("token")
        status = pb.AppMasterStatus(app=order.app, attempt=order.attempt)
        master = AppMasterRecord(kept, status, 0, self._node.folder / "app_masters" / f"{order.app}.json")
        # An earlier launcher may have begun it and recorded nothing else.
        master.container = self._containers.get(_container_id(status))
        self._all[order.app] = master
        self._begin(master)

    def stop(self, order: pb.AppMasterStop) -> None:
        """End an app's master for good."""
        master = self._all.get(order.app)
        if master is None or master.status.state == pb.APP_MASTER_COMPLETED:
            return
        master.stopped.set()
        if master.status.state == pb.APP_MASTER_RUNNING:
            self._changed(master, pb.APP_MASTER_STOPPING)
        if master.container is not None:
            self._containers.stop(master.container, order.deadline_seconds, "the arbiter stopped it")

    def end_all(self, deadline_seconds: float) -> None:
        """End all of them."""
        for app in self._all:
            self.stop(pb.AppMasterStop(app=app, deadline_seconds=deadline_seconds))

    async def ended(self) -> None:
        """Wait until the end of every ordered app master is recorded."""
        await asyncio.gather(*self._lives, return_exceptions=True)

    def adopt(self) -> None:
        """Take over the app masters of an earlier launcher; their containers are adopted already."""
        for path in sorted((self._node.folder / "app_masters").glob("*.json")):
            master = AppMasterRecord.load(path)
            if master is None:
                continue
            self._all[master.order.app] = master
            master.status.version = self._containers.news.tell()
            if master.status.state == pb.APP_MASTER_COMPLETED:
                continue
            self._find_container(master)
            self._begin(master)

    def _find_container(self, master: AppMasterRecord) -> None:
        """Find the container of its last attempt, which may have begun after the record was written."""
        status = master.status
        if status.state != pb.APP_MASTER_BACKING_OFF:
            master.container = self._containers.get(_container_id(status))
            return
        status.attempt += 1
        master.container = self._containers.get(_container_id(status))
        if master.container is None:
            status.attempt -= 1
            return
        master.restarts += 1
        status.state = pb.APP_MASTER_STATE_UNSPECIFIED

    def _begin(self, master: AppMasterRecord) -> None:
        life = asyncio.create_task(self._live(master))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)

    async def _live(self, master: AppMasterRecord) -> None:
        """Run attempts until one of them is the last."""
        if master.status.state == pb.APP_MASTER_BACKING_OFF:  # adopted in a pause
            await self._pause(master)
        while not (master.stopped.is_set() and master.container is None):
            await self._attempt(master)
            if master.final:
                break
            self._changed(master, pb.APP_MASTER_BACKING_OFF)
            await self._pause(master)
        self._changed(master, pb.APP_MASTER_COMPLETED)
        log.info("app_master.completed", app=master.order.app, attempt=master.status.attempt)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Drop the app master that ended longest ago, with its record."""
        ended = [master for master in self if master.status.state == pb.APP_MASTER_COMPLETED]
        ended.sort(key=lambda master: master.status.ended_at)
        for master in ended[:-MOST_ENDED]:
            del self._all[master.order.app]
            self._containers.advances.pop(master.order.app, None)
            master.drop()

    async def _attempt(self, master: AppMasterRecord) -> None:
        """Run one attempt to its end; one that cannot be started has ended."""
        advances = self._containers.advances[master.order.app]
        try:
            container = master.container or self._launch(master)
        except OSError as error:
            master.judge(0.0, went_further=False)
            self._note_end(
                master,
                pb.ContainerStatus(ended_at=self._node.system.unix_time(), diagnostics=f"its start failed: {error}"),
            )
            return
        master.container = container
        while not container.done.is_set():
            if container.status.pid != master.status.pid or master.status.state == pb.APP_MASTER_STATE_UNSPECIFIED:
                master.status.pid = container.status.pid
                master.status.started_at = container.status.started_at
                state = pb.APP_MASTER_STOPPING if master.stopped.is_set() else pb.APP_MASTER_RUNNING
                self._changed(master, state)
            await self._containers.news.next()
        master.container = None
        self._note_end(master, container.status)
        began = container.status.started_at or container.status.ended_at  # 0: its process never began
        went_further = self._containers.advances[master.order.app] > advances
        master.judge(container.status.ended_at - began, went_further=went_further)

    def _note_end(self, master: AppMasterRecord, ended: pb.ContainerStatus) -> None:
        master.status.pid = 0
        master.status.exit.CopyFrom(ended.exit)
        master.status.ended_at = ended.ended_at
        master.status.diagnostics = ended.diagnostics

    async def _pause(self, master: AppMasterRecord) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(master.stopped.wait(), master.pause_seconds(self._pause_seconds))
        if not master.stopped.is_set():
            master.restarts += 1
            master.status.attempt += 1
            master.status.state = pb.APP_MASTER_STATE_UNSPECIFIED

    def _changed(self, master: AppMasterRecord, state: "pb.AppMasterState.ValueType") -> None:
        master.status.state = state
        master.status.version = self._containers.news.tell()
        try:
            master.save()
        except OSError as error:  # a full disk must not keep its end from being reported
            log.error("app_master.not_saved", app=master.order.app, error=str(error))

    def _launch(self, master: AppMasterRecord) -> Container:
        order, attempt = master.order, master.status.attempt
        app_folder = self._node.app_folder(order.app)
        env = {**base_environment(), **order.env, **self._own_environment(order.app, attempt)}
        status = pb.ContainerStatus(
            container_id=_container_id(master.status), app=order.app, slot=NO_SLOT, state=pb.NEW
        )
        container = Container(status, self._folder(order.app) / str(attempt), system=self._node.system)
        env[MARK] = container.mark
        command = ContainerCommand(
            argv=(interpreter(order.command[0], env), *order.command[1:]),
            cwd=order.folder or str(app_folder),
            env=env,
            stdout=str(app_folder / "appmaster.out.log"),
            stderr=str(app_folder / "appmaster.err.log"),
            may_fork=False,  # it has no use for torch
        )
        self._containers.launch(container, command)
        return container

    def _own_environment(self, app: str, attempt: int) -> dict[str, str]:
        folder = self._folder(app)
        return {
            "EUNOMIA_APP": app,
            "EUNOMIA_ATTEMPT": str(attempt),
            "EUNOMIA_APP_DIR": str(self._node.app_folder(app)),
            "EUNOMIA_STATE_DIR": str(self._node.state),
            "EUNOMIA_ADDRESS": self._arbiter,
            "EUNOMIA_TOKEN_FILE": str(folder / "token"),
            "EUNOMIA_NODE": self._node.name,
            "EUNOMIA_NODE_TOKEN_FILE": str(folder / "node_token"),
            "EUNOMIA_LAUNCHER_FILE": str(self._node.launcher_file),
        }

    def _write_tokens(self, order: pb.AppMasterOrder) -> None:
        folder = self._folder(order.app)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tokens = {"token": order.token, "node_token": node_token(self._node.secret, order.app, self._node.name)}
        for name, token in tokens.items():
            path = folder / name
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(token)

    def _folder(self, app: str) -> Path:
        return self._node.app_folder(app) / "appmaster"


def _container_id(status: pb.AppMasterStatus) -> str:
    return f"appmaster:{status.app}:{status.attempt}"  # a colon stands in no app master's own ids
