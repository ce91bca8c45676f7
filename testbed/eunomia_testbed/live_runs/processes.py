"""The processes of a live run in containers, identified by pid and start time, so that no other is signalled."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eunomia.model.shapes import value
from eunomia_appmaster.launcher.processes import ProcessId, identify
from eunomia_appmaster.node.supervisor import Child


@value
class ContainerProcess:
    """A container whose process is alive.

    Attributes:
        container: id of the container.
        app: the app.
        job: the job, such as ``cnn/3``; for an app master, the app.
        slot: number of the container's slot; negative: the container is an app master's.
        trains: whether the worker has registered with the launcher.
        process: the worker's process, or the app master's.
        shepherd: the process that starts the worker and waits for its end; None: the shepherd has ended.
    """

    container: str
    app: str
    job: str
    slot: int
    trains: bool
    process: ProcessId
    shepherd: ProcessId | None

    @property
    def is_master(self) -> bool:
        """Return whether the container is an app master's."""
        return self.slot < 0


def container_processes(folder: Path) -> Iterator[ContainerProcess]:
    """Yield each container of a state folder whose process is alive."""
    for link in sorted((folder / "launcher" / "live").glob("*")):
        record, worker = _read(link / "container.json"), _read(link / "worker.json")
        if record is None or worker is None or (link / "exit.json").exists():
            continue
        process = ProcessId(int(worker["pid"]), int(worker["start_time"]))
        shepherd = ProcessId(int(worker["shepherd_pid"]), int(worker["shepherd_start_time"]))
        if not process.alive:
            continue
        app, slot = str(record["app"]), int(record["slot"])
        yield ContainerProcess(
            container=str(record["container_id"]),
            app=app,
            job=app if slot < 0 else f"{app}/{record['job']}",
            slot=slot,
            trains=bool(record["status"].get("hello")),
            process=process,
            shepherd=shepherd if shepherd.alive else None,
        )


def process_of(child: Child | None) -> ProcessId | None:
    """Return the current process of a supervised child; None: the child is being restarted."""
    pid = None if child is None else child.pid
    if child is None or pid is None:
        return None
    process = identify(pid)
    return process if child.pid == pid else None  # the pid cannot be reused before the child has been waited for


def _read(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None: the file has no complete object."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return plain if isinstance(plain, dict) else None
