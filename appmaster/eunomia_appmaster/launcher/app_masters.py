"""Runs app masters in containers without a slot: starts on the arbiter's order, restarts after pauses, adoption."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import structlog
from google.protobuf import json_format

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.master_logs import STDERR, STDOUT, own_master_log
from eunomia_appmaster.launcher.container import NO_SLOT, Container
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.files import put_aside, read_json, remove, write_json
from eunomia_appmaster.launcher.master_start import command_of, node_environment, way_to_arbiter
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.own_ends import OwnEnds, last_words
from eunomia_appmaster.launcher.owners import account_of, check_owner
from eunomia_appmaster.launcher.processes import MARK
from eunomia_appmaster.launcher.stalls import WHAT, Stalls, stacks_path
from eunomia_appmaster.launcher.starts import container_id, first_of, name_of, set_next
from eunomia_appmaster.node.kept_files import OLDER, sealed_token
from eunomia_appmaster.node.own_ends_limit import OwnEndsLimit
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.node_names import check_name
from eunomia_appmaster.protocol.tokens import node_token

log = structlog.get_logger()

HELD_BACK_SECONDS = 20.0
"""Seconds within which a suspended app's master must exit before it is killed."""
HASTY_SECONDS = 10.0
"""Seconds; after an attempt that was shorter, the next pause is doubled."""
MOST_PAUSE_SECONDS = 30.0
"""Longest pause in seconds before a restart of an app master that is not suspended."""
MOST_ENDED = 1000
"""Maximum number of kept records of ended app masters; an arbiter that was away for long gets its reports from them."""
UNFINISHED = 1
"""Exit code that stands for an app master that exited with 0 although its app has not ended."""
LEASE_LOOK_SECONDS = 0.5
"""Seconds between two checks whether the node has a lease again."""
PAUSES = (pb.APP_MASTER_BACKING_OFF, pb.APP_MASTER_SUSPENDED)
"""States of an app master between two attempts."""


class AppMasterRecord:
    """An app's master with all its attempts; its record on disk survives the launcher.

    Attributes:
        own_ends: the ends of attempts that count against the app master.
        hasty: number of consecutive attempts that ended within ``HASTY_SECONDS``.
        stopped: set when no further attempt may follow.
        hurried: set when the next attempt is to start without a pause.
        held_back: why no attempt may run, such as an exceeded quota; empty: attempts may run.
    """

    def __init__(self, order: pb.AppMasterOrder, status: pb.AppMasterStatus, path: Path) -> None:
        self.order = order
        self.status = status
        self.own_ends = OwnEnds()
        self.hasty = 0
        self.container: Container | None = None
        self.stopped = asyncio.Event()
        self.hurried = asyncio.Event()
        self.held_back = ""
        self.unsaved = False
        """Whether the last write of the record failed."""
        self._path = path

    @property
    def lives(self) -> bool:
        """Whether an attempt runs, or another attempt may follow."""
        return self.status.state not in (pb.APP_MASTER_STOPPING, pb.APP_MASTER_COMPLETED)

    @property
    def final(self) -> bool:
        """Whether the end of the last attempt is permanent, so that no further attempt follows."""
        return self.stopped.is_set() or (self.status.exit.HasField("code") and self.status.exit.code == 0)

    def limit(self, of_cluster: OwnEndsLimit) -> OwnEndsLimit:
        """Return the limit on the app master's counted ends: the one in the arbiter's order, else the cluster's."""
        if not self.order.HasField("max_own_ends"):
            return of_cluster
        return OwnEndsLimit(ends=self.order.max_own_ends, seconds=of_cluster.seconds)

    def judge(self, ended: pb.ContainerStatus, limit: OwnEndsLimit) -> None:
        """Count the end of an attempt, if it is the app master's own, and adapt the pause to the attempt's length."""
        lasted = _lasted(ended)
        self.hasty = self.hasty + 1 if lasted < HASTY_SECONDS else 0
        self.own_ends.judge(self.status.exit, limit, lasted=lasted, now=ended.ended_at, stall=ended.stall)

    def pause_seconds(self, first: float) -> float:
        """Return the seconds until the next attempt; ``first`` is the first pause in seconds."""
        if self.own_ends.suspended:
            return self.own_ends.pause_seconds
        return min(MOST_PAUSE_SECONDS, first * 2.0 ** min(max(self.hasty - 1, 0), 30))

    def save(self) -> None:
        """Write the record, which contains the app's token, so that a restarted launcher can start the next attempt."""
        record = {
            "order": json_format.MessageToDict(self.order, preserving_proto_field_name=True),
            "status": json_format.MessageToDict(self.status, preserving_proto_field_name=True),
            "own_ends": self.own_ends.record(),
            "hasty": self.hasty,
        }
        self.unsaved = True
        write_json(self._path, record)
        self.unsaved = False

    def drop(self) -> None:
        """Delete the record."""
        remove(self._path)

    @classmethod
    def load(cls, path: Path) -> "AppMasterRecord | None":
        """Read the record; None if there is no usable one."""
        record = read_json(path)
        if record is None:
            return None
        try:
            order = json_format.ParseDict(record["order"], pb.AppMasterOrder())
            status = json_format.ParseDict(record["status"], pb.AppMasterStatus())
            master = cls(order, status, path)
            status.part = max(1, status.part)  # of a version whose launchers numbered attempts
            master.own_ends = OwnEnds.of_record(record.get("own_ends", {}))
        except (KeyError, TypeError, AttributeError, json_format.ParseError) as error:
            # without a sum, of an earlier version
            put_aside(path, repr(error))
            return None
        master.hasty = record.get("hasty", 0)
        if status.state == pb.APP_MASTER_STOPPING:
            master.stopped.set()
        return master


class AppMasters:
    """All app masters of this node.

    Args:
        node: the machine of the app masters.
        containers: runs them.
        arbiter: the arbiter's address, passed to each app master.
        pause_seconds: seconds before the first restart; doubled after each short attempt, up to a limit.
        keep_seconds: seconds for which the record of an ended app master is kept.
        stalls: ends app masters that hang.
        reaches: returns the variables with which app masters here reach the arbiter, in addition to its address.
    """

    def __init__(
        self,
        node: Node,
        containers: Containers,
        arbiter: str,
        *,
        pause_seconds: float = 1.0,
        keep_seconds: float = 3600.0,
        stalls: Stalls | None = None,
        reaches: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._stalls = Stalls(containers) if stalls is None else stalls
        self._node = node
        self._containers = containers
        self._arbiter = arbiter
        self._reaches = reaches
        self._pause_seconds = pause_seconds
        self._keep_seconds = keep_seconds
        self.draining = False
        """Whether this launcher was ordered to drain, so that it starts nothing more."""
        self.registered = asyncio.Event()
        """Set once the arbiter accepts this launcher; with a copied state folder, no app master starts before that."""
        self._all: dict[str, AppMasterRecord] = {}
        self._lives: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[AppMasterRecord]:
        return iter(self._all.values())

    def start(self, order: pb.AppMasterOrder) -> None:
        """Carry out the arbiter's order to start an app master, once; a start on a user's request ends the pause."""
        check_name(order.app, "an app's name")
        known = self._all.get(order.app)
        if self.draining or (known is not None and known.status.attempt >= order.attempt):
            return
        with contextlib.suppress(EunomiaError):  # an invalid account: the attempt reports it
            self._write_tokens(order)  # a full disk refuses the order here, and the arbiter repeats it
        kept = pb.AppMasterOrder()
        kept.CopyFrom(order)
        if known is not None and known.status.state != pb.APP_MASTER_COMPLETED:
            if known.status.state in PAUSES and order.asked:
                known.order, known.own_ends = kept, OwnEnds()
                known.hurried.set()
            return
        status = first_of(order, self._folder(order), self._containers)
        if known is not None:
            status.stalls, status.last_stall = known.status.stalls, known.status.last_stall
        master = AppMasterRecord(kept, status, self._node.folder / "app_masters" / f"{order.app}.json")
        if status.state == pb.APP_MASTER_COMPLETED:  # the arbiter gets this report, and orders a later attempt
            self._all[order.app] = master
            self._changed(master, status.state)
            return
        if known is not None and not order.asked:
            self._follow_up(master, known)
        # An earlier launcher may have begun it and recorded nothing else.
        master.container = self._containers.get(container_id(status))
        self._all[order.app] = master
        self._begin(master)

    def _follow_up(self, master: AppMasterRecord, before: AppMasterRecord) -> None:
        """Carry over an app master's counted ends; an exit with 0 counts too, since the arbiter ordered a new start."""
        master.own_ends = before.own_ends
        status = before.status
        unasked = not before.stopped.is_set() and not status.drained
        if unasked and status.exit.HasField("code") and status.exit.code == 0:
            refuted = pb.Exit(code=UNFINISHED)
            master.own_ends.judge(
                refuted, master.limit(self._node.limits.own_ends), lasted=_lasted(status), now=status.ended_at
            )
            if master.own_ends.suspended:
                master.status.attempt, master.status.part = status.attempt, status.part  # the earlier attempt's
                master.status.exit.CopyFrom(status.exit)
                self._suspend(master, "its app is not over")

    def stop(self, order: pb.AppMasterStop) -> None:
        """End an app's master permanently."""
        master = self._all.get(order.app)
        if master is None or master.status.state == pb.APP_MASTER_COMPLETED:
            return
        master.stopped.set()
        if master.status.state == pb.APP_MASTER_RUNNING:
            self._changed(master, pb.APP_MASTER_STOPPING)
        if master.container is not None:
            self._containers.stop(master.container, order.deadline_seconds, "the arbiter stopped it")

    async def end_stalled(self, order: pb.StalledAppMaster) -> None:
        """End an attempt that hangs, once; the next attempt follows. A process stopped by a signal gets more time."""
        master = self._all.get(order.app)
        runs = master is not None and master.status.state == pb.APP_MASTER_RUNNING
        if master is None or not runs or master.container is None:
            return
        if (master.status.attempt, master.status.part) != (order.attempt, order.part):
            return
        container = master.container
        if not self._stalls.app_master_hangs(container, order.limit_seconds):
            return
        if not await self._stalls.end_now([container], f"it hung: {order.why}"):
            return
        what = WHAT[container.status.stall]
        master.status.stalls += 1
        master.status.last_stall = f"{order.why}; {what}; stacks are in {stacks_path(container)}"
        self._changed(master, master.status.state)

    def drain(self, deadline_seconds: float) -> None:
        """End all app masters because this launcher ends, and start none; the next launcher restarts them."""
        self.draining = True
        for app, master in self._all.items():
            ordered = master.stopped.is_set() or master.status.state == pb.APP_MASTER_COMPLETED
            master.status.drained = master.status.drained or not ordered
            self.stop(pb.AppMasterStop(app=app, deadline_seconds=deadline_seconds))

    async def ended(self) -> None:
        """Wait until the end of every app master is recorded."""
        await asyncio.gather(*self._lives, return_exceptions=True)

    def adopt(self) -> None:
        """Adopt the app masters of an earlier launcher, whose containers are adopted already."""
        folder = self._node.folder / "app_masters"
        names = {path.name.removesuffix(OLDER) for path in folder.glob("*.json*")}
        for path in sorted(folder / name for name in names if name.endswith(".json")):
            master = AppMasterRecord.load(path)
            if master is None:
                continue
            self._all[master.order.app] = master
            master.status.version = self._containers.news.announce()
            if master.status.state == pb.APP_MASTER_COMPLETED:
                continue
            self._find_container(master)
            self._begin(master)

    def _find_container(self, master: AppMasterRecord) -> None:
        """Find the container of an app master's last attempt, which may have begun after the record was written."""
        status = master.status
        if status.state not in PAUSES:
            master.container = self._containers.get(container_id(status))
            return
        before = status.attempt, status.part
        set_next(status, master.order)
        master.container = self._containers.get(container_id(status))
        if master.container is None:
            status.attempt, status.part = before
            return
        status.ClearField("again_at")
        status.held_back = False
        status.state = pb.APP_MASTER_STATE_UNSPECIFIED

    def _begin(self, master: AppMasterRecord) -> None:
        life = asyncio.create_task(self._live(master))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)

    async def _live(self, master: AppMasterRecord) -> None:
        """Run the attempts of an app master, one after another, up to the last."""
        if master.status.state in PAUSES:  # adopted in a pause, or suspended from the beginning
            await self._pause(master)
        while not (master.stopped.is_set() and master.container is None):
            if master.container is None and not self.registered.is_set():
                await self._first_of(self.registered, master.stopped)
                continue
            if master.container is None and self._node.lease.is_over:
                await self._first_of(master.stopped, seconds=LEASE_LOOK_SECONDS)
                continue
            await self._attempt(master)
            if master.final:
                break
            if master.held_back:
                master.status.held_back = True
                self._say_suspended(master, master.held_back)
            elif master.own_ends.suspended:
                self._suspend(master, last_words(self._log(master, STDERR)))
            else:
                self._changed(master, pb.APP_MASTER_BACKING_OFF)
            await self._pause(master)
        self._changed(master, pb.APP_MASTER_COMPLETED)
        log.info("app_master.completed", app=master.order.app, attempt=master.status.attempt)
        self._drop(sorted(self._ended(), key=lambda one: one.status.ended_at)[:-MOST_ENDED])

    def _suspend(self, master: AppMasterRecord, said: str) -> None:
        """Suspend an app master whose attempts ended by themselves too often; ``said`` is the last line of its log."""
        status, ends = master.status, master.own_ends
        status.again_at = self._node.system.unix_time() + ends.pause_seconds
        self._say_suspended(master, ends.words(master.limit(self._node.limits.own_ends), status.exit, said))

    def _say_suspended(self, master: AppMasterRecord, why: str) -> None:
        master.status.diagnostics = why
        self._changed(master, pb.APP_MASTER_SUSPENDED)
        log.warning("app_master.suspended", app=master.status.app, attempt=master.status.attempt, why=why)

    def hold_back(self, app: str, why: str) -> None:
        """Suspend an app for the given reason, without another attempt; an empty reason lets the app continue."""
        master = self._all.get(app)
        if master is None or not master.lives:
            return
        before, master.held_back = master.held_back, why
        if why and master.container is not None:
            self._containers.stop(master.container, HELD_BACK_SECONDS, why)
        elif before and not why:
            master.hurried.set()

    def forget(self, is_acknowledged: Callable[[pb.AppMasterStatus], bool]) -> None:
        """Delete the records of app masters that ended long ago and whose ends the arbiter has acknowledged."""
        before = self._node.system.unix_time() - self._keep_seconds
        self._drop([one for one in self._ended() if one.status.ended_at < before and is_acknowledged(one.status)])

    def _ended(self) -> list[AppMasterRecord]:
        return [one for one in self if one.status.state == pb.APP_MASTER_COMPLETED]

    def _drop(self, masters: Iterable[AppMasterRecord]) -> None:
        for master in masters:
            del self._all[master.order.app]
            master.drop()

    async def _attempt(self, master: AppMasterRecord) -> None:
        """Run one attempt to its end; an attempt that cannot be started counts as ended."""
        try:
            container = master.container or self._launch(master)
        except (OSError, EunomiaError) as error:
            now = self._node.system.unix_time()
            self._note_end(
                master, pb.ContainerStatus(ended_at=now, started_at=now, diagnostics=f"its start failed: {error}")
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

    def _note_end(self, master: AppMasterRecord, ended: pb.ContainerStatus) -> None:
        master.status.pid = 0
        master.status.exit.CopyFrom(ended.exit)
        master.status.ended_at = ended.ended_at
        master.status.diagnostics = ended.diagnostics
        master.judge(ended, master.limit(self._node.limits.own_ends))

    async def _pause(self, master: AppMasterRecord) -> None:
        """Wait until the next attempt is due, or the arbiter orders it at once or forbids it."""
        status = master.status
        seconds: float | None = master.pause_seconds(self._pause_seconds)
        if master.held_back:
            seconds = None
        elif status.HasField("again_at"):  # the machine's clock may have been set meanwhile
            seconds = min(seconds or 0.0, max(0.0, status.again_at - self._node.system.unix_time()))
        await self._first_of(master.stopped, master.hurried, seconds=seconds)
        master.hurried.clear()
        status.ClearField("again_at")
        status.held_back = False
        if not master.stopped.is_set():
            set_next(status, master.order)
            status.state = pb.APP_MASTER_STATE_UNSPECIFIED

    @staticmethod
    async def _first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _changed(self, master: AppMasterRecord, state: "pb.AppMasterState.ValueType") -> None:
        master.status.state = state
        master.status.version = self._containers.news.announce()
        try:
            master.save()
        except OSError as error:  # a full disk must not keep its end from being reported
            log.error("app_master.not_saved", app=master.order.app, error=str(error))

    def _launch(self, master: AppMasterRecord) -> Container:
        order = master.order
        app_folder = self._node.app_folder(order.app)
        account = account_of(order.login)
        check_owner(app_folder, account)
        self._write_tokens(order)
        env = {**node_environment(), **order.env, **self._own_environment(order, master.status)}
        env |= {} if account is None else account.environment
        status = pb.ContainerStatus(container_id=container_id(master.status), app=order.app, slot=NO_SLOT, state=pb.NEW)
        container = Container(
            status,
            self._folder(order) / name_of(master.status),
            account=account,
            run_folder=None if account is None else app_folder / "appmaster",
            system=self._node.system,
        )
        env |= {MARK: container.mark, "EUNOMIA_CONTAINER_DIR": str(container.worker_folder)}
        output = self._log(master, STDOUT), self._log(master, STDERR)
        self._containers.launch(container, command_of(order, order.folder or str(app_folder), env, *output))
        return container

    def _own_environment(self, order: pb.AppMasterOrder, status: pb.AppMasterStatus) -> dict[str, str]:
        app, folder = order.app, self._folder(order)
        return {
            "EUNOMIA_APP": app,
            "EUNOMIA_LOGIN": order.login,
            "EUNOMIA_ATTEMPT": str(status.attempt),
            "EUNOMIA_PART": str(status.part),
            "EUNOMIA_APP_DIR": str(self._node.app_folder(app)),
            "EUNOMIA_STATE_DIR": str(self._node.state),
            "EUNOMIA_ADDRESS": self._arbiter,
            "EUNOMIA_TOKEN_FILE": str(folder / self._own_name("token")),
            "EUNOMIA_NODE": self._node.name,
            "EUNOMIA_NODE_TOKEN_FILE": str(folder / self._own_name("node_token")),
            "EUNOMIA_LAUNCHER_FILE": str(self._node.launcher_file),
            **way_to_arbiter(self._reaches(), self._node.folder, order.login),
        }

    def _write_tokens(self, order: pb.AppMasterOrder) -> None:
        folder, account = self._folder(order), account_of(order.login)
        if account is None:
            check_owner(self._node.app_folder(order.app), None)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif not folder.exists():
            self._node.make_records_folder(folder)
        tokens = {"node_token": node_token(self._node.secret, order.app, self._node.name)}
        if order.token:  # the record of an earlier version has none
            tokens["token"] = order.token
        for name, token in tokens.items():
            path = folder / self._own_name(name)
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(sealed_token(token))
                if account is not None:
                    os.fchown(file.fileno(), account.uid, -1)

    def _own_name(self, name: str) -> str:
        """Add the node's name to a file name, so that a launcher that was cut off cannot overwrite newer tokens."""
        return f"{name}.{self._node.name}"

    def _log(self, master: AppMasterRecord, stream: str) -> Path:
        folder = self._node.app_folder(master.order.app)
        return own_master_log(folder, master.status.attempt, self._node.name, stream)

    def _folder(self, order: pb.AppMasterOrder) -> Path:
        """Return the folder with an app master's attempts and tokens, which only the launcher can change."""
        around = self._node.records_folder(order.app) if order.login else self._node.app_folder(order.app)
        return around / "appmaster"


def _lasted(ended: pb.ContainerStatus | pb.AppMasterStatus) -> float:
    """Return the duration of an attempt in seconds; 0: its process never began."""
    return max(0.0, ended.ended_at - (ended.started_at or ended.ended_at))
