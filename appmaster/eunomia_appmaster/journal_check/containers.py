"""Reads the workers' own files: each process with its slot, its start and end, and its epoch."""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from eunomia_appmaster.journal_check.cluster import Cluster
from eunomia_appmaster.journal_check.findings import AddFinding, Finding, Rule

FOREVER = float("inf")
EPOCHS = Path("launcher", "epochs.json")


@dataclass(slots=True, kw_only=True, eq=False)
class Container:
    """A worker's container.

    Attributes:
        place: path of the container's record below the checked folder.
        slot: number of the slot in the cluster; None if the journal has no such slot.
        start: Unix time in seconds at which the container's process began; None if it never began.
        end: Unix time in seconds at which its last process ended; FOREVER if not recorded.
        ranks: number of ranks of the gang; 0 if not known.
        worked: whether the worker reported steps.
        ordered: whether the journal has the order that started it.
    """

    place: str
    id: str
    app: str
    job: str
    incarnation: int
    own_slot: int
    slot: int | None
    epoch: int
    start: float | None
    end: float
    ranks: int
    worked: bool
    ordered: bool = False

    @property
    def span(self) -> str:
        """The container's start and end as text."""
        until = "now" if self.end == FOREVER else f"{self.end:.3f}"
        return f"from {self.start or 0.0:.3f} to {until}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files of workers and launcher; ``epochs`` maps a slot of the node to the launcher's latest epoch."""

    containers: list[Container]
    epochs: dict[int, int]


def read_epochs(folder: Path) -> dict[int, int]:
    """Read the launcher's fencing tokens, by slot; empty if there are none."""
    try:
        record = _json(folder / EPOCHS) or {}
        return {int(slot): int(known["highest"]) for slot, known in record.items()}
    except (KeyError, TypeError, ValueError):
        return {}


def read_containers(folder: Path, cluster: Cluster) -> list[Container]:
    """Read every worker's container below a state folder.

    If an app runs under a user's account, its records are in a folder of the launcher. The app's own folder is then
    not read, since the account could have written other records or a link there.
    """
    nodes = cluster.nodes
    own = [app for app in sorted(folder.glob("apps/*")) if app.lstat().st_uid == folder.stat().st_uid]
    records = [record for app in own for record in sorted(app.glob("*/containers/*/container.json"))]
    records += sorted(folder.glob("launcher/containers/*/*/container.json"))
    made = (_container(record, folder, cluster, nodes) for record in records)
    return [container for container in made if container is not None]


def _container(path: Path, folder: Path, cluster: Cluster, nodes: list[str]) -> Container | None:
    record = _json(path)
    if record is None or int(record.get("slot", -1)) < 0:
        return None
    worker, command = (_json(path.with_name(f"{name}.json")) or {} for name in ("worker", "start"))
    status, env = record.get("status") or {}, command.get("env") or {}
    node = env.get("EUNOMIA_NODE") or (nodes[0] if len(nodes) == 1 else "")
    job = int(record.get("job", 0))
    return Container(
        place=str(path.relative_to(folder)),
        id=str(record["container_id"]),
        app=str(record["app"]),
        job=f"{record['app']}/{job}",
        incarnation=int(record.get("incarnation", 0)),
        own_slot=int(record["slot"]),
        slot=cluster.number_of(node, int(record["slot"]), int(record["epoch"])),
        epoch=int(record["epoch"]),
        start=float(worker["started_at"]) if "started_at" in worker else None,
        end=_end(path),
        ranks=int(env.get("WORLD_SIZE") or 0),
        worked=int((status.get("progress") or {}).get("step", 0)) > 0,
    )


def look_again(container: Container, folder: Path) -> None:
    """Read again the end of a container that had none when its files were first read."""
    if container.end == FOREVER:
        container.end = _end(folder / container.place)


def _end(path: Path) -> float:
    """Return when the container's last process ended (Unix seconds), by its shepherd's record, else its launcher's."""
    ended = (_json(path.with_name("exit.json")) or {}).get("ended_at")
    if not ended:
        record = _json(path) or {}
        ended = (record.get("status") or {}).get("ended_at") if record.get("state") == "COMPLETED" else None
    return float(ended or FOREVER)


def _json(path: Path) -> dict[str, Any] | None:
    """Read a JSON file with a checksum; None if the file does not exist, or is damaged (wrong checksum)."""
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(made, dict):
        return None
    known = made.pop("sum", None)
    return made if known in (None, f"{zlib.crc32(json.dumps(made).encode()):08x}") else None


# -- checks without the journal


def check_alone(containers: Iterable[Container], folder: Path, note: AddFinding) -> None:
    """Check the workers' files against each other."""
    by_slot: dict[int, list[Container]] = defaultdict(list)
    gangs: dict[tuple[str, int], list[Container]] = defaultdict(list)
    for container in containers:
        gangs[container.job, container.incarnation].append(container)
        if container.start is not None:
            by_slot[container.own_slot if container.slot is None else container.slot].append(container)
    for slot, mine in by_slot.items():
        _check_slot(slot, sorted(mine, key=lambda each: each.start or 0.0), folder, note)
    for (job, incarnation), ranks in gangs.items():
        _check_gang(job, incarnation, ranks, note)


def _check_slot(slot: int, mine: list[Container], folder: Path, note: AddFinding) -> None:
    for one, other in _overlapping(mine):
        if _ended_meanwhile(one, other, folder):
            continue
        what = f"{one.id} {one.span} and {other.id} {other.span} ran on slot {slot} at once"
        times = (other.start or 0.0, min(one.end, other.end))
        note(Finding(rule=Rule.RAN_TWICE, what=what, place=other.place, app=other.app, slot=slot, at=times))
    for one, other in pairwise(mine):
        if other.epoch < one.epoch:
            what = f"{other.id} started on slot {slot} under epoch {other.epoch} after {one.id} under {one.epoch}"
            started = (other.start or 0.0,)
            note(Finding(rule=Rule.OLD_EPOCH, what=what, place=other.place, app=other.app, slot=slot, at=started))


def _overlapping(mine: list[Container]) -> Iterator[tuple[Container, Container]]:
    """Yield pairs of containers that overlap in time; ``mine`` is sorted by start."""
    last: Container | None = None
    for container in mine:
        if last is not None and last.end > (container.start or 0.0):
            yield last, container
        if last is None or container.end >= last.end:
            last = container


def _ended_meanwhile(one: Container, other: Container, folder: Path) -> bool:
    """Return whether a container of a live run has ended since its files were read."""
    look_again(one, folder)
    return one.end <= (other.start or 0.0)


def _check_gang(job: str, incarnation: int, ranks: list[Container], note: AddFinding) -> None:
    wanted = max(each.ranks for each in ranks)
    began = [each for each in ranks if each.start is not None]
    slots = {each.own_slot if each.slot is None else each.slot for each in began}
    if any(each.worked for each in began) and len(slots) < wanted:
        what = f"incarnation {incarnation} of {job} made steps with {len(slots)} of its {wanted} workers"
        first = min(each.start or 0.0 for each in began)
        note(Finding(rule=Rule.GANG_IN_PART, what=what, place=ranks[0].place, app=ranks[0].app, at=(first,)))
