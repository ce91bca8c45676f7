"""Reads the periods of worker processes on slots from the files that the launcher's shepherds write."""

import dataclasses
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A worker's period on a slot in Unix times; an ``end`` of None was not recorded."""

    slot: int
    job: str
    incarnation: int
    epoch: int
    start: float
    end: float | None


def stays(folder: Path) -> list[Stay]:
    """Return every worker that ran below a state folder, by slot and time."""
    found: list[Stay] = []
    for record in folder.glob("apps/*/*/containers/*/container.json"):
        container, worker, ended = (_read(record.with_name(f"{name}.json")) for name in ("container", "worker", "exit"))
        if container is None or worker is None or container["slot"] < 0:
            continue
        found.append(
            Stay(
                slot=int(container["slot"]),
                job=str(container["job"]),
                incarnation=int(container["incarnation"]),
                epoch=int(container["epoch"]),
                start=float(worker["started_at"]),
                end=None if ended is None else float(ended["ended_at"]),
            )
        )
    return sorted(found, key=lambda stay: (stay.slot, stay.start))


def at_once(found: Iterable[Stay]) -> list[tuple[Stay, Stay]]:
    """Return pairs of workers that overlap on one slot; a worker without an end ends when the next starts."""
    by_slot: dict[int, list[Stay]] = defaultdict(list)
    for stay in found:
        by_slot[stay.slot].append(stay)
    return [
        (one, other)
        for mine in by_slot.values()
        for one, other in itertools.pairwise(mine)
        if one.end is not None and one.end > other.start
    ]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return plain if isinstance(plain, dict) else None
