"""Who can be killed: the processes of a live run, from the files of its launcher."""

import contextlib
import dataclasses
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORKER, APP_MASTER, ARBITER, LAUNCHER = "worker", "app master", "arbiter", "launcher"
KINDS = (WORKER, APP_MASTER, ARBITER)
ALL_KINDS = (*KINDS, LAUNCHER)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container that has not ended; ``pid`` None: no process runs in it yet."""

    id: str
    app: str
    job: int
    incarnation: int
    is_master: bool
    hello: bool
    pid: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A process that was killed.

    Attributes:
        at: Unix time.
        moment: what it met, of ``moments.MOMENTS``, or ``moments.BETWEEN`` them.
        aimed: whether it waited for such a moment.
    """

    kind: str
    victim: str
    pid: int
    at: float
    moment: str
    aimed: bool


def containers(folder: Path) -> Iterator[Container]:
    """Every container of a run that has not ended, and whose process lives if it has one."""
    for link in (folder / "launcher" / "live").glob("*"):
        record, worker = read(link / "container.json"), read(link / "worker.json")
        if record is None or record["state"] == "COMPLETED" or (link / "exit.json").exists():
            continue
        if worker is not None and not lives(worker):
            continue
        yield Container(
            id=str(record["container_id"]),
            app=str(record["app"]),
            job=int(record["job"]),
            incarnation=int(record["incarnation"]),
            is_master=record["slot"] < 0,
            hello=bool(record["status"].get("hello")),
            pid=None if worker is None else int(worker["pid"]),
        )


def end_those_left(folder: Path, seconds: float) -> list[str]:
    """Wait until no container of a run that was stopped has a process, and kill what has one after so many seconds.

    Returns:
        The containers that were killed.
    """
    deadline = time.monotonic() + seconds
    while left := [each for each in containers(folder) if each.pid is not None]:
        if time.monotonic() > deadline:
            for each in left:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(each.pid or 0, signal.SIGKILL)  # it leads a group of its own
            return sorted(each.id for each in left)
        time.sleep(0.1)
    return []


def lives(worker: dict[str, Any]) -> bool:
    """Whether the process of that pid is still the one that was started then."""
    return started(int(worker["pid"])) == int(worker["start_time"])


def started(pid: int) -> int | None:
    """When a process started, which tells it from another of the same pid; None: there is none that lives."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] == "Z" else int(fields[19])


def read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where there is no whole one."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return plain if isinstance(plain, dict) else None
