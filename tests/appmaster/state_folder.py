"""A real state folder, the damages to its files, and what each part of Eunomia reads from it."""

import asyncio
import dataclasses
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import structlog
from tests.appmaster.serving_lab import client, eventually, supervisor, tiny_app

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.app.master_folders import trials_file
from eunomia_appmaster.app.submission import Submission
from eunomia_appmaster.app.trials_file import read_trials_file
from eunomia_appmaster.explaining.activity import ActivityLog
from eunomia_appmaster.launcher.app_masters import AppMasterRecord
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.errors import NotRegisteredError
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.master.files import read_newest_state
from eunomia_appmaster.master.gangs import lost_checkpoints
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.kept_files import read_token
from eunomia_appmaster.profiler.log_folder import LogFolder
from eunomia_appmaster.service.watchdog import Watchdog

APP = "ana"


class Kind(Enum):
    """How damage to a file is met."""

    KEPT = "a sum and an older copy, which is taken and said"
    COPY = "an older copy: read only where the newer file is damaged"
    AGAIN = "written again by the process that knows its content"
    LEFT_OUT = "a sum for each row; a damaged row is left out and said"
    LOG = "a sum for each entry; a damaged entry is left out and said; what is missing at the end was never written"
    CHECKPOINT = "a SHA-256; the checkpoint before it is taken and said, or the job starts again"
    FREE = "nothing that is decided follows from it"
    JOURNAL = "the journal's own, see tests/chaos/damage and test_marks.py"


JOB = rf"apps/{APP}/\d+"
CONTAINER = rf"({JOB}/containers/[^/]+|apps/{APP}/appmaster/\d+)"
TABLE: dict[str, Kind] = {
    r"journal\.sqlite(-wal|-shm|\.lock)?|journal\.archive/.*|(launcher/)?journal\.mark|journal\.reserve": Kind.JOURNAL,
    r"asking\.json|hung\.txt": Kind.FREE,
    r"run/(address|token|launcher\.token)": Kind.AGAIN,
    r"launcher/lock|launcher/lease": Kind.FREE,  # the lease is written again with each answer of the arbiter
    r"launcher/(epochs|launcher)\.json|launcher/secret": Kind.KEPT,
    rf"launcher/app_masters/{APP}\.json": Kind.KEPT,
    r"launcher/stacks/stacks\.txt|launcher/zygote[^/]*\.log": Kind.FREE,  # of a launcher that hung; what zygotes print
    r"launcher/live/[^/]+": Kind.FREE,  # of an ended container; test_the_link_of_a_running_container_is_made_again
    rf"apps/{APP}/(app\.toml|submission\.json|master/[^/]+/master\.json)": Kind.KEPT,
    rf"apps/{APP}/master/[^/]+/trials\.csv": Kind.LEFT_OUT,
    rf"apps/{APP}/(activity/[^/]+|master/[^/]+/master\.changes)\.jsonl": Kind.LOG,
    rf"apps/{APP}/appmaster\.a\d+\.[^/]+\.(out|err)\.log|{JOB}/output/[^/]+\.std(out|err)\.log": Kind.FREE,
    rf"apps/{APP}/appmaster/(token|node_token)\.[^/]+": Kind.AGAIN,
    rf"{CONTAINER}/container\.json": Kind.KEPT,
    rf"{CONTAINER}/(claim|start\.json|exit\.json(\.new)?|pulse|stacks\.txt)": Kind.FREE,  # not read after its end
    rf"{CONTAINER}/worker\.json": Kind.KEPT,  # container.json has it, too
    rf"{JOB}/checkpoints/[^/]+/\d+\.(json|pt)": Kind.CHECKPOINT,
    rf"{JOB}/logs/events\.out\.tfevents\..*": Kind.LOG,
    r".*\.old": Kind.COPY,
}
"""Every file that a run leaves in its state folder."""


def kind_of(file: str) -> Kind | None:
    """Return how damage to a file is met; None: the table lacks it."""
    return next((kind for pattern, kind in TABLE.items() if re.fullmatch(pattern, file)), None)


def files_of(state: Path) -> list[str]:
    """Return every file and link of a state folder, sorted; sockets live with their process."""
    paths = [path for path in state.rglob("*") if path.is_symlink() or path.is_file()]
    return sorted(str(path.relative_to(state)) for path in paths)


def flipped(content: bytes, draw: float = 0.5) -> bytes:
    """Return the content with one bit of one byte flipped."""
    at = int(draw * len(content))
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :] if content else content


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "a byte flipped": flipped,
    "a late byte flipped": lambda content: flipped(content, 0.9),
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "removed": lambda _: None,
}


def damage(path: Path, how: Callable[[bytes], bytes | None]) -> bool:
    """Damage a file; return whether that changed it. A link is removed, or replaced by a file."""
    before = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
    after = how(before)
    if after == before:
        return False
    mode = path.lstat().st_mode & 0o777
    path.unlink()
    if after is not None:
        path.write_bytes(after)
        path.chmod(mode)
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A state folder as a run left it, and a copy of it."""

    state: Path
    copy: Path

    def restore(self) -> None:
        """Put the folder back as it was, at its own place: what differs by mode, size or time of change is replaced."""
        there, wanted = _entries(self.state), _entries(self.copy)
        for name in sorted(there, reverse=True):  # what is in a folder before the folder
            if there[name] != wanted.get(name):
                _removed(self.state / name)
        for name in sorted(wanted):
            if there.get(name) != wanted[name]:
                _copied(self.copy / name, self.state / name)


def _entries(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return each file, link and folder in a folder, with what shows that it is as it was."""
    found: dict[str, tuple[object, ...]] = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        name, kind = str(path.relative_to(folder)), stat.S_IFMT(about.st_mode)
        if kind == stat.S_IFLNK:
            found[name] = (kind, str(path.readlink()))
        elif kind == stat.S_IFDIR:
            found[name] = (kind,)
        else:
            found[name] = (about.st_mode, about.st_size, about.st_mtime_ns)
    return found


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


def _copied(source: Path, to: Path) -> None:
    if source.is_dir() and not source.is_symlink():
        to.mkdir()
        shutil.copymode(source, to)
    else:
        shutil.copy2(source, to, follow_symlinks=False)


def made(folder: Path) -> Snapshot:
    """Return the folder of a run with real processes, stopped while its jobs had work left."""
    with supervisor(folder) as running, client(running) as arbiter:
        arbiter.submit(tiny_app(folder, APP, iterations=150, seconds=0.01, searches=True))
        logs = running.state_dir / "apps" / APP
        eventually(lambda: len(list(logs.glob("*/logs/events*"))) == 2, "two jobs")
        eventually(lambda: trials_file(logs).exists() and len(read_trials_file(logs)) > 1, "trials")
        time.sleep(0.2)
        left = {running.run_dir / name: (running.run_dir / name).read_bytes() for name in ("address",)}
    for path, content in left.items():
        path.write_bytes(content)  # as where arbiter and supervisor are killed
    shutil.copytree(folder / "state", folder / "copy", symlinks=True)
    return Snapshot(folder / "state", folder / "copy")


def readings(state: Path) -> dict[str, Callable[[], Any]]:
    """Return by name all that is read when everything starts again, each as a function that reads it."""
    app = state / "apps" / APP
    made: dict[str, Callable[[], Any]] = {
        "node": lambda: _node(state),
        "watchdog": lambda: Watchdog(state, 30.0).fault(),
    }
    for link in sorted((state / "launcher" / "live").iterdir()):
        made[f"container {link.name}"] = lambda link=link: _container(link)  # type: ignore[misc]
    made["app master"] = lambda: _app_master(state / "launcher" / "app_masters" / f"{APP}.json")
    made["submission"] = lambda: Submission.read(app)
    made["search"] = lambda: _search(app)
    for name in ("token", "node_token"):
        made[name] = lambda name=name: read_token(app / "appmaster" / f"{name}.{socket.gethostname()}")  # type: ignore[misc]
    made["launcher.token"] = lambda: read_token(state / "run" / "launcher.token")
    made["trials"] = lambda: read_trials_file(app)
    made["activity"] = lambda: ActivityLog(app, APP).poll()
    for job in sorted(path.parent for path in app.glob("*/logs")):
        made[f"logs {job.name}"] = lambda job=job: _logs(job)  # type: ignore[misc]
    return made


def _node(state: Path) -> Any:
    node = Node(state, "box", local_machine.detect(2, use_gpus=False))
    os.close(node._lock)
    epochs = {slot: (node.epochs[slot].highest, node.epochs[slot].closed) for slot in range(2)}
    try:
        secret = node.secret
    except NotRegisteredError:  # the arbiter's answer to its registration has it
        secret = b""
    return epochs, secret, node.last_address


def _container(link: Path) -> Any:
    container = Container.load(link) if link.is_symlink() and link.is_dir() else None
    return None if container is None else (str(container.status), container.worker, container.shepherd)


def _app_master(path: Path) -> Any:
    async def read() -> Any:
        master = AppMasterRecord.load(path)
        return None if master is None else (str(master.order), master.own_ends.record())

    return asyncio.run(read())


def _search(app: Path) -> Any:
    state = read_newest_state(app)
    if state is None:
        return None
    found = []
    for job in state.jobs:
        store = JobCheckpoints(app / str(job.number) / "checkpoints")
        newest = store.latest()
        for record in app.glob(f"{job.number}/containers/*"):
            if (container := Container.load(record)) is not None:  # what the launcher tells a new attempt
                job.saved_step = max(job.saved_step, container.status.saved_step)
        lost = lost_checkpoints(job, newest, store.faults)
        if lost:
            structlog.get_logger().error("lost", why=lost, place=str(store.folder))
        found.append((job.number, str(job.state), job.parameters, newest))
    return found


def _logs(job: Path) -> Any:
    logs = LogFolder(job / "logs")
    polled = logs.poll()
    for finding in polled.findings:
        structlog.get_logger().error("finding", rule=finding.rule, place=finding.place)
    return {tag: (len(series), series.value.tolist()) for tag, series in polled.points.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What was read, and what was said."""

    values: dict[str, Any]
    errors: dict[str, EunomiaError]
    said: str


def read_all(state: Path) -> Seen:
    """Read the folder as all parts do; an error other than Eunomia's own comes through."""
    values, errors = dict[str, Any](), dict[str, EunomiaError]()
    with structlog.testing.capture_logs() as logs:
        for name, read in readings(state).items():
            try:
                values[name] = read()
            except EunomiaError as error:
                errors[name] = error
    return Seen(values, errors, "\n".join(str(line) for line in [*logs, *errors.values()]))


def each(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield each file but the journal's, and damage, with the folder restored and damaged so."""
    for file in (file for file in files_of(snapshot.copy) if kind_of(file) is not Kind.JOURNAL):
        for name, how in DAMAGES.items():
            snapshot.restore()
            if damage(snapshot.state / file, how):
                yield file, name
