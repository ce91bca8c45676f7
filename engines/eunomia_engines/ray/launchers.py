"""Records on a Ray node's local disk of the processes that run its launcher: lock, pids and start times.

A launcher outlives the actor that started it, and Ray restarts actors. So the data with which an actor finds the
launcher are in ``eunomia-UID-MARK/NODE.ray`` below the request's ``node_dir``, beside the lock of the node's name,
which the pilot and the launcher hold.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from eunomia.model.shapes import value
from eunomia_appmaster.launcher.processes import ProcessId, identify
from eunomia_appmaster.node.private_files import write_private
from eunomia_engines.pilots.names import lock_name


@value
class NodeRecord:
    """The processes of a node's launcher.

    Attributes:
        pilot: process that restarts the launcher when the launcher dies.
        launcher: process of the launcher; None: it has not started.
        actors: Ray's ids of the actors that have watched the launcher, in order; the last one watches it now.
    """

    pilot: ProcessId
    launcher: ProcessId | None
    actors: tuple[str, ...]


def record_path(base: Path, node: str) -> Path:
    """Return the file of a node's record below the folder of the host's nodes."""
    return base / f"{node}.ray"


def write_record(base: Path, node: str, record: NodeRecord) -> None:
    """Write the record of a node."""
    rows = [None if one is None else [one.pid, one.start_time] for one in (record.pilot, record.launcher)]
    text = json.dumps({"pilot": rows[0], "launcher": rows[1], "actors": record.actors})
    write_private(record_path(base, node), text.encode())


def read_record(base: Path, node: str) -> NodeRecord | None:
    """Return the record of a node; None: there is none, or it is damaged."""
    try:
        found = json.loads(record_path(base, node).read_text(encoding="utf-8"))
        launcher = found["launcher"]
        return NodeRecord(
            pilot=ProcessId(*map(int, found["pilot"])),
            launcher=None if launcher is None else ProcessId(*map(int, launcher)),
            actors=tuple(map(str, found["actors"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_held(base: Path, node: str) -> bool:
    """Return whether a pilot or a launcher holds the name of a node."""
    lock = lock_name(base, node)
    if lock is not None:
        os.close(lock)
    return lock is None


def living(record: NodeRecord | None) -> Sequence[ProcessId]:
    """Return the running processes of a record, the pilot before the launcher."""
    if record is None:
        return ()
    return [one for one in (record.pilot, record.launcher) if one is not None and one.alive]


def own_id() -> ProcessId:
    """Return the id of this process: pid and start time.

    Raises:
        OSError: ``/proc`` cannot be read.
    """
    found = identify(os.getpid())
    if found is None:
        raise OSError("/proc must have this process")
    return found
