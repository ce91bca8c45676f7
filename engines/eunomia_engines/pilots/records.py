"""Records of pilots: which node of the arbiter an engine's node became, and with which code its launcher ended.

A pilot writes ``pilots/ID.json`` below the engine's folder before its launcher starts, and ``pilots/ID.end`` is written
once the launcher has ended; ID is the engine's id of the node, such as that of a batch job. Both files are replaced
atomically and read by name, since they are on shared storage.
"""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from eunomia.model.shapes import value
from eunomia_appmaster.node.private_files import write_private

PILOTS: Final = "pilots"
"""Folder of the records, below the engine's folder."""
CLEAN: Final = 0
"""Exit code of a launcher that has ended everything that ran on its node."""


@value
class Pilot:
    """A pilot's record.

    Attributes:
        job: the engine's id of the node, such as that of a batch job.
        node: name of the arbiter's node.
        host: the machine, by the engine's name for it.
        began_at: Unix time in seconds.
        ended: exit code of the launcher; None: no end is recorded.
    """

    job: str
    node: str
    host: str
    began_at: float
    ended: int | None = None


def write_pilot(folder: Path, pilot: Pilot) -> None:
    """Write the record of a starting pilot, below the engine's folder."""
    record = {"job": pilot.job, "node": pilot.node, "host": pilot.host, "began_at": pilot.began_at}
    write_private(folder / PILOTS / f"{pilot.job}.json", json.dumps(record).encode(), sync=True)


def pilots(folder: Path) -> Mapping[str, Pilot]:
    """Return all recorded pilots by the engine's id, without records that are damaged or being written."""
    found: dict[str, Pilot] = {}
    for path in sorted((folder / PILOTS).glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            job = str(record["job"])
            found[job] = Pilot(
                job=job,
                node=str(record["node"]),
                host=str(record["host"]),
                began_at=float(record["began_at"]),
                ended=end_of(folder, job),
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def end_of(folder: Path, job: str) -> int | None:
    """Return the recorded exit code of a launcher; None: none is recorded, so its end is unknown."""
    try:
        return int((folder / PILOTS / f"{job}.end").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def drop_pilot(folder: Path, job: str) -> None:
    """Remove the record of a node that has ended and has left the arbiter; its recorded exit code stays."""
    (folder / PILOTS / f"{job}.json").unlink(missing_ok=True)


def drop_ends(folder: Path, known: AbstractSet[str]) -> None:
    """Remove the recorded exit codes of all nodes except those in ``known``."""
    for path in (folder / PILOTS).glob("*.end"):
        if path.stem not in known:
            path.unlink(missing_ok=True)


def write_end(folder: Path, job: str, code: int) -> None:
    """Record the exit code of a launcher that has ended."""
    write_private(folder / PILOTS / f"{job}.end", f"{code}\n".encode(), sync=True)


def ended_clean(folder: Path, node: str) -> bool:
    """Return whether the last launcher of a node ended everything there, so that the next launcher joins as new."""
    before = [pilot for pilot in pilots(folder).values() if pilot.node == node]
    return bool(before) and max(before, key=lambda pilot: pilot.began_at).ended == CLEAN
