"""Records of pilots: which node of the arbiter a batch job became, and with which code its launcher ended.

A pilot writes ``pilots/JOB.json`` before its launcher starts, and its script ``pilots/JOB.end`` once it has ended; both
are replaced whole, and read by name, as they stand on shared storage.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eunomia.model.shapes import value
from eunomia_appmaster.node.private_files import write_private
from eunomia_engines.slurm.request import FOLDER
from eunomia_engines.slurm.script import PILOTS

CLEAN: Final = 0
"""Exit code of a launcher that has ended everything that ran on its node."""


@value
class Pilot:
    """A pilot's record.

    Attributes:
        job: id of the batch job.
        node: name of the arbiter's node.
        host: the machine, by Slurm's name for it.
        began_at: Unix time in seconds.
        ended: exit code of the launcher; None: it has not ended by its script's word.
    """

    job: str
    node: str
    host: str
    began_at: float
    ended: int | None = None


def write_pilot(state: Path, pilot: Pilot) -> None:
    """Write the record of a pilot that begins."""
    record = {"job": pilot.job, "node": pilot.node, "host": pilot.host, "began_at": pilot.began_at}
    write_private(_folder(state) / f"{pilot.job}.json", json.dumps(record).encode(), sync=True)


def pilots(state: Path) -> Mapping[str, Pilot]:
    """Return all pilots by the id of their job; records that are damaged or being written are left out."""
    found: dict[str, Pilot] = {}
    for path in sorted(_folder(state).glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            job = str(record["job"])
            found[job] = Pilot(
                job=job,
                node=str(record["node"]),
                host=str(record["host"]),
                began_at=float(record["began_at"]),
                ended=end_of(state, job),
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def end_of(state: Path, job: str) -> int | None:
    """Return the exit code that a job's script has noted; None: none, so that nothing is known of its end."""
    try:
        return int((_folder(state) / f"{job}.end").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def drop_pilot(state: Path, job: str) -> None:
    """Remove the records of a job that is over and whose node has left."""
    for name in (f"{job}.json", f"{job}.end"):
        (_folder(state) / name).unlink(missing_ok=True)


def _folder(state: Path) -> Path:
    return state / FOLDER / PILOTS
