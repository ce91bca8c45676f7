"""The record of one container: its status for the arbiter and its app master, and the data for its adoption."""

import asyncio
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import structlog
from google.protobuf import json_format

from eunomia_appmaster.launcher import live_words
from eunomia_appmaster.launcher.files import put_aside, read_json, write_json
from eunomia_appmaster.launcher.orders import OrderSocket
from eunomia_appmaster.launcher.prepared import Prepared
from eunomia_appmaster.launcher.processes import ProcessId
from eunomia_appmaster.launcher.unkilled import Unkilled
from eunomia_appmaster.node.accounts import Account
from eunomia_appmaster.node.control_groups import NO_GROUP, ControlGroup, of_record, record_of
from eunomia_appmaster.node.machine_faults import out_of_memory_kills
from eunomia_appmaster.node.system import MACHINE, ReservedPort, System
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

RECORD, START, WORKER, EXIT, CLAIM = "container.json", "start.json", "worker.json", "exit.json", "claim"
REFUSED = "refused.json"
"""Name of the file in which a shepherd records why it started no worker."""
WORKERS_OWN = "worker"
SUSPENDED = 75  # EX_TEMPFAIL
NO_SLOT = -1  # of an app master, or of a job's store
MOST_ANNOUNCEMENTS = 64
"""Most announcements of a worker in its status; older ones are dropped."""
MOST_NUMBER, MOST_ANNOUNCED = 1e15, 10_000
"""Bounds of a worker's report: largest number, and most characters of announcements. The arbiter would reject every
report of a machine that exceeds them."""


class Container:
    """One worker process, or app master, with its children.

    Args:
        status: its reported status, updated in place.
        folder: absolute path of the folder with its records; if it has an account, only the launcher may write there.
        account: the account that it runs under; None: the launcher's own.
        run_folder: folder of its job, or of its app master's attempts; None: the parent of ``folder``.
        system: provides the machine's clocks.

    Attributes:
        worker: the worker's process, once it is known.
        shepherd: the worker's parent process, once it is known.
        kill_at: time at which it is killed, in seconds of ``System.uptime``.
        stop_at: the step of the last ``stop_at`` order, sent again to a worker that connects.
        change: the newest ``change`` order, also sent again to a worker that connects.
        members: the ids of its gang's containers on all machines when it started, if the gang changes its size live; a
            restarted launcher does not know them.
        group: its control group.
        gang_slots: slots on this machine of all containers of its gang, whose GPUs it may use.
        prepared: the wait of a prepared container for its start; None: it starts at once.
        port: the gang's ``MASTER_PORT``, reserved as long as the container of rank 0 lives.
        kills_before: the machine's count of kills for lack of memory when this launcher started or adopted the
            container.
        done: set once the container is COMPLETED.
        unkilled: its processes that have not ended since SIGKILL.
    """

    def __init__(
        self,
        status: pb.ContainerStatus,
        folder: Path,
        *,
        account: Account | None = None,
        run_folder: Path | None = None,
        system: System = MACHINE,
    ) -> None:
        self._system = system
        self.status = status
        self.folder = folder
        self.account = account
        self._run_folder = run_folder
        self.worker: ProcessId | None = None
        self.shepherd: ProcessId | None = None
        self.kill_at: float | None = None
        self.unsaved = False
        self.stop_at: dict[str, Any] | None = None
        self.change: dict[str, Any] | None = None
        self.members: tuple[str, ...] = ()
        self.orders: OrderSocket | None = None
        self.killer: asyncio.Task[None] | None = None
        self.group: ControlGroup = NO_GROUP
        self.gang_slots: frozenset[int] = frozenset({status.slot})
        self.prepared: Prepared | None = None
        self.port: ReservedPort | None = None
        self.kills_before = out_of_memory_kills()
        self.done = asyncio.Event()
        self.unkilled = Unkilled(status.container_id, system)
        self.seen_before: float | None = None
        """Unix time at which an earlier launcher last ran, if this launcher has never seen the container alive."""

    @property
    def id(self) -> str:
        """Its id, unique on the node."""
        return self.status.container_id

    @property
    def run_folder(self) -> Path:
        """The folder of its job, or of its app master's attempts."""
        if self._run_folder is not None:
            return self._run_folder
        return self.folder.parent if self.status.slot == NO_SLOT else self.folder.parent.parent

    @property
    def worker_folder(self) -> Path:
        """The folder for the files that the worker itself writes: pulse and stacks."""
        return self.folder if self.account is None else self.folder / WORKERS_OWN

    @property
    def mark(self) -> str:
        """Value of ``EUNOMIA_CONTAINER_ID`` in the environment of the container's processes.

        It includes the folder, since another launcher on this machine may use the same id.
        """
        return mark_of(self.id, self.folder)

    @property
    def completed(self) -> bool:
        """Whether the container's state is COMPLETED: all of its processes have ended."""
        return self.status.state == pb.COMPLETED

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds until the container is killed; None: it has no deadline."""
        return None if self.kill_at is None else max(0.0, self.kill_at - self._system.uptime())

    async def may_start(self) -> bool:
        """Wait, if the container is prepared, until its start is ordered or given up; returns whether it starts."""
        if self.prepared is None or await self.prepared.wait():
            return True
        why = "stopped" if self.status.state == pb.STOPPING else "given up, since no order to go came,"
        self.never_began(f"{why} before its worker was started")
        return False

    def give_up(self) -> None:
        """Cancel the start of a prepared container, because the container is stopped or its lease ends."""
        if self.prepared is not None:
            self.prepared.give_up()

    def never_began(self, why: str) -> None:
        """Record the exit code of a suspension for a container that never started, since no work is lost."""
        self.status.exit.code = SUSPENDED
        self.status.diagnostics = why

    def close(self) -> None:
        """Close the container's socket for orders, and release its reserved port."""
        if self.orders is not None:
            self.orders.close()
        if self.port is not None:
            self.port.close()

    def save(self) -> None:
        """Write container.json."""
        status = self.status
        record = {
            "container_id": status.container_id,
            "app": status.app,
            "job": status.job,
            "incarnation": status.incarnation,
            "slot": status.slot,
            "epoch": status.epoch,
            "state": pb.ContainerState.Name(status.state),
            "pid": self.worker.pid if self.worker else None,
            "pid_start_time": self.worker.start_time if self.worker else None,
            "pgid": self.worker.pid if self.worker else None,  # it leads a session and group of its own
            "shepherd_pid": self.shepherd.pid if self.shepherd else None,
            "shepherd_start_time": self.shepherd.start_time if self.shepherd else None,
            "kill_at_boot_seconds": self.kill_at,
            "stop_at": self.stop_at,
            "change": self.change,
            "group": record_of(self.group),
            "status": json_format.MessageToDict(status, preserving_proto_field_name=True),
        }
        if self.account is not None:
            record |= {"account": dataclasses.asdict(self.account), "run_folder": str(self.run_folder)}
        self.unsaved = True
        write_json(self.folder / RECORD, record)
        self.unsaved = False

    @classmethod
    def load(cls, folder: Path, *, system: System = MACHINE) -> "Container | None":
        """Read container.json and the shepherd's files; None if there is no record of such a container."""
        record = read_json(folder / RECORD)
        if record is None:
            if (folder / WORKER).exists():  # written after the record
                log.error("container.without_record", container=folder.name, missing=RECORD)
            return None
        try:
            status = json_format.ParseDict(record["status"], pb.ContainerStatus())
            account = record.get("account")
            container = cls(
                status,
                folder,
                account=None if account is None else Account(**(account | {"groups": tuple(account["groups"])})),
                run_folder=Path(record["run_folder"]) if account is not None else None,
                system=system,
            )
            container.kill_at = record["kill_at_boot_seconds"]
            container.stop_at, container.change = record["stop_at"], record.get("change")
            container.group = of_record(record.get("group"))  # none: of an earlier version
        except (KeyError, TypeError, json_format.ParseError) as error:  # a file without a sum, of an earlier version
            put_aside(folder / RECORD, repr(error))
            return None
        if not container.read_worker() and record.get("pid") and record.get("shepherd_pid"):  # worker.json is damaged
            container.worker = ProcessId(record["pid"], record["pid_start_time"])
            container.shepherd = ProcessId(record["shepherd_pid"], record["shepherd_start_time"])
        if container.completed:
            container.done.set()
        return container

    def unseen_end(self, now: float, left: int) -> float:
        """Return the Unix time in seconds at which a container ended whose shepherd reported no end.

        On a machine that was switched off, all processes ended together with the launcher.

        Args:
            now: the present Unix time in seconds.
            left: number of the container's processes that lived until now.
        """
        if self.seen_before is None or left:
            return now
        return min(now, max(self.seen_before, self.status.started_at))

    def read_worker(self) -> bool:
        """Read the process ids from the shepherd's worker.json; returns whether the file exists."""
        record = read_json(self.folder / WORKER)
        if record is None:
            return False
        self.worker = ProcessId(record["pid"], record["start_time"])
        self.shepherd = ProcessId(record["shepherd_pid"], record["shepherd_start_time"])
        self.status.pid = record["pid"]
        self.status.started_at = record["started_at"]
        return True

    def keeps(self, order: dict[str, Any]) -> bool:
        """Store an order of a kind that workers get again whenever they connect; returns whether it is of such a kind.

        Of several ``change`` orders, the one with the highest generation is kept.
        """
        if "change" in order:
            if order["change"]["generation"] >= self.status.live.ordered:
                self.change, self.status.live.ordered = order, order["change"]["generation"]
            return True
        if order["order"] == "stop_at":
            self.stop_at = order
            return True
        return False

    def standing_orders(self) -> list[dict[str, Any]]:
        """Return the stored ``stop_at`` and ``change`` orders, which are sent to a worker when it connects."""
        return [order for order in (self.stop_at, self.change) if order is not None]

    def heard(self, kind: str, content: dict[str, Any]) -> None:
        """Store a worker's message in the status; a malformed message raises KeyError, TypeError or ValueError."""
        status = self.status
        if kind == "hello":
            status.hello = True
        elif kind == "progress":
            progress = pb.Progress(step=int(_number(content["step"])))
            if content.get("seconds_per_step") is not None:
                progress.seconds_per_step = _number(content["seconds_per_step"])
            status.progress.CopyFrom(progress)
        elif kind == "saved":
            status.saved_step = int(_number(content["step"]))
        elif kind == "suspended":
            status.suspended_step = int(_number(content["step"]))
        elif kind == "announce":
            announced = json.dumps(content)
            if len(announced) > MOST_ANNOUNCED:
                raise ValueError(f"an announcement must have at most {MOST_ANNOUNCED} letters")
            self._announce(announced)
        elif kind == "misused":
            status.misuse = str(content["why"])[: live_words.MOST_WHY]
        elif kind in live_words.SAID and status.HasField("live"):
            live_words.hear(status.live, kind, content)
        else:
            raise ValueError(f"no such message: {kind}")

    def _announce(self, regime: str) -> None:
        """Store an announcement with its number, step and time, within the bound on characters of all announcements."""
        status = self.status
        status.announce_json = regime
        kept = status.announcements
        number = kept[-1].number + 1 if kept else 1
        made = kept.add(number=number, at=self._system.unix_time(), regime_json=regime)
        if status.HasField("progress"):
            made.step = status.progress.step
        while len(kept) > MOST_ANNOUNCEMENTS or sum(len(one.regime_json) for one in kept) > MOST_ANNOUNCED:
            del kept[0]


def mark_of(container_id: str, folder: Path) -> str:
    """Return the mark that identifies a container's processes; see ``Container.mark``."""
    return f"{container_id}@{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def _number(given: Any) -> float:
    """Return a number that a worker reported.

    Raises:
        ValueError: it is out of bounds.
    """
    number = float(given)
    if not 0.0 <= number <= MOST_NUMBER:  # NaN is not, either
        raise ValueError(f"a number must be from 0 to {MOST_NUMBER:g}")
    return number
