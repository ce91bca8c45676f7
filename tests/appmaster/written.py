"""Judges a log of writes: no writer changed another's file, and jobs went on from the newest writer's state.

Not a test. ``recorder/`` notes each change just before it is made; ``breaches`` looks at them afterwards, by the rules
of docs/decisions/0321-no-writer-touches-what-another-wrote.md, with code of its own: it imports nothing of the product.
``overlaps`` reads from the records of containers when each worker lived, and finds slots and jobs that had two at once.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REMOVALS: Final = ("os.remove", "os.rmdir")
SURE_SECONDS: Final = 1.0
"""A checkpoint that was complete so long before another writer began must have been seen by that one."""
_BELOW_APPS = re.compile(r"/(?:state/apps|apps-of-[^/]+)/(.+)")
_WRITERS_FOLDER = re.compile(r"([^/]+/\d+)/(checkpoints|best)/(a(\d+)-i(\d+)-g(\d+))(?:/(.+))?")
_MASTERS_FOLDER = re.compile(r"([^/]+)/master/(a(\d+)-g(\d+))(?:/(.+))?")
_EVENTS = re.compile(r"([^/]+)/activity/a(\d+)-g(\d+)\.jsonl")
_LOGS = re.compile(r"([^/]+/\d+)/logs/[^/]*\.a(\d+)\.r(\d+)")
_OF_NODE = re.compile(r"[^/]+/\d+/(?:output/a\d+-i\d+-g\d+\.(?P<named>.+)\.std|containers/(?P<container>[^/]+)/)")
_RECORD = re.compile(r"\d+\.json")


Writer = tuple[int, str]
"""Pid, and job or app."""


@dataclass(frozen=True)
class Change:
    """One change of a file or folder below the apps' folders, as its process was about to make it.

    Attributes:
        at: seconds of CLOCK_MONOTONIC.
        unix: the same moment as Unix time.
        what: name of Python's audit event.
        paths: below the apps' folders; of a rename or link the former one first.
        who: app, job, attempt, part, incarnation, node and pid of the process; empty: it has none.
    """

    at: float
    unix: float
    what: str
    paths: tuple[str, ...]
    who: dict[str, Any]

    @property
    def fence(self) -> tuple[int, int]:
        """Attempt and incarnation of the writer; zeros: it is neither a worker nor an app master."""
        return int(self.who["attempt"] or 0), int(self.who["incarnation"] or 0)

    @property
    def writer(self) -> Writer:
        return int(self.who["pid"]), str(self.who["job"] or self.who["app"])

    def __str__(self) -> str:
        who = {name: value for name, value in self.who.items() if value}
        return f"{self.what} {' -> '.join(self.paths)} at {self.at:.3f} by {who}"


def changes(log: Path) -> list[Change]:
    """Return all recorded changes below apps' folders, in order of time."""
    found = []
    for file in log.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            with suppress(ValueError):  # the last line of a process that was killed
                made = json.loads(line)
                below = [_BELOW_APPS.search(path) for path in made["paths"]]
                if below and all(below):
                    paths = tuple(match[1] for match in below if match)
                    found.append(Change(made["at"], made["unix"], made["what"], paths, made["who"]))
    return sorted(found, key=lambda change: change.at)


def breaches(made: Sequence[Change]) -> list[str]:
    """Return what breaks the rules of writers; empty: nothing does."""
    return [*_others_files(made), *_older_states(made)]


def nodes_of(made: Iterable[Change]) -> dict[str, str]:
    """Return the node of each worker's container, by what its shepherd and itself changed in its folder."""
    found = ((_OF_NODE.match(path), change.who["node"]) for change in made for path in change.paths)
    return {match["container"]: node for match, node in found if match and match["container"] and node}


# -- no writer changes another's file


def _others_files(made: Iterable[Change]) -> Iterator[str]:
    owners = _Owners()
    nodes: dict[str, str] = {}
    for change in made:
        for path in _changed_paths(change):
            yield from owners.of_folder(change, path)
            yield from owners.of_file(change, path)
            place = _OF_NODE.match(path)
            if place is None or not change.who["node"]:
                continue
            here = place["named"] or nodes.setdefault(f"container {place['container']}", change.who["node"])
            if here != change.who["node"]:
                yield f"a file of node {here} was changed on another: {change}"


def _changed_paths(change: Change) -> tuple[str, ...]:
    return change.paths[1:] if change.what == "os.link" else change.paths


class _Owners:
    """The first writer of each folder and file that is named after a fence, and whether others changed them."""

    def __init__(self) -> None:
        self._of: dict[str, Writer] = {}
        self._generations: dict[Writer, int] = {}
        """By writer, the generation of the folder that it made last, or tried to make."""

    def of_folder(self, change: Change, path: str) -> Iterator[str]:
        """Judge a change in a folder of a writer."""
        if (match := _WRITERS_FOLDER.match(path)) is not None:
            fence, generation = (int(match[4]), int(match[5])), int(match[6])
            folder, inside = f"{match[1]}/{match[2]}/{match[3]}", match[7]
        elif (match := _MASTERS_FOLDER.match(path)) is not None:
            fence, generation = (int(match[3]), 0), int(match[4])
            folder, inside = f"{match[1]}/master/{match[2]}", match[5]
        else:
            return
        newest = (*change.fence, self._generations.get(change.writer, 0))
        if change.what in REMOVALS and newest > (*fence, generation):
            return  # the newest writer deletes folders of older ones
        if change.fence != fence:
            yield f"a writer of another fence than {fence}: {change}"
        elif inside is None and change.what == "os.mkdir":  # of one that exists it is refused
            self._generations[change.writer] = generation
        elif self._of.setdefault(folder, change.writer) != change.writer:
            yield f"two writers in one folder, the first was {self._of[folder]}: {change}"

    def of_file(self, change: Change, path: str) -> Iterator[str]:
        """Judge a change of a file that is named after its writer."""
        if (match := _EVENTS.match(path)) is not None:
            fence = (int(match[2]), 0)
        elif (match := _LOGS.match(path)) is not None:
            fence = (int(match[2]), int(match[3]))
        else:
            return
        if change.fence != fence or self._of.setdefault(path, change.writer) != change.writer:
            yield f"a file of {self._of.get(path, fence)} was changed by another: {change}"


# -- jobs go on from the newest writer's state


def _older_states(made: Sequence[Change]) -> Iterator[str]:
    """Find writers that went on from another state than that of the newest writer before them."""
    by_job: dict[str, list[Change]] = defaultdict(list)
    for change in made:
        match = _WRITERS_FOLDER.match(change.paths[-1])
        if match is not None and match[2] == "checkpoints":
            by_job[match[1]].append(change)
    after = _after_of(made)
    for job, mine in by_job.items():
        complete = [(change, fence) for change in mine if (fence := _completes(change)) is not None]
        for began, own in _beginnings(mine):
            known = {
                fence
                for change, fence in complete
                if fence[:2] < own and (then := after.get(id(change))) is not None and then < began.at - SURE_SECONDS
            }
            link = _adopted(mine, began)
            taken = None if link is None else _fence_of(link.paths[0])
            newest = max(known, default=None)
            if newest is not None and (taken is None or taken < newest):
                yield f"{job}: {own} went on from {taken}, though {newest} had saved before: {began}"


def _after_of(made: Iterable[Change]) -> dict[int, float]:
    """Return by change when its process made its next one, by which this one was done."""
    last: dict[Writer, Change] = {}
    after = {}
    for change in made:
        if (before := last.get(change.writer)) is not None:
            after[id(before)] = change.at
        last[change.writer] = change
    return after


def _fence_of(path: str) -> tuple[int, int, int] | None:
    match = _WRITERS_FOLDER.match(path)
    return None if match is None else (int(match[4]), int(match[5]), int(match[6]))


def _completes(change: Change) -> tuple[int, int, int] | None:
    """Return the fence of the folder in which a change completes a checkpoint; None: it does not."""
    match = _WRITERS_FOLDER.match(change.paths[-1])
    if change.what != "os.rename" or match is None or _RECORD.fullmatch(match[7] or "") is None:
        return None
    return _fence_of(change.paths[-1])


def _beginnings(mine: Sequence[Change]) -> Iterator[tuple[Change, tuple[int, int]]]:
    """Yield the first ``mkdir`` of each writer, with its fence."""
    seen = set()
    for change in mine:
        if change.what == "os.mkdir" and change.writer not in seen and _fence_of(change.paths[-1]) is not None:
            seen.add(change.writer)
            yield change, change.fence


def _adopted(mine: Sequence[Change], began: Change) -> Change | None:
    """Return the last link that a writer made before its first save; None: none."""
    links = [
        change
        for change in mine
        if change.writer == began.writer and change.what == "os.link" and change.at >= began.at
    ]
    return links[-1] if links else None


# -- no slot, and no job, has two at once


@dataclass(frozen=True)
class Life:
    """A worker's process; Unix times."""

    container: str
    since: float
    until: float


def overlaps(apps: Path, made: Sequence[Change], *, jobs: bool) -> list[str]:
    """Return pairs of workers that lived at one time on one slot, or, of different incarnations, for one job.

    Args:
        apps: the apps' folders.
        made: all changes. A worker whose end no launcher saw, since its machine lost power, lived until its last one.
        jobs: whether jobs are looked at, too.
    """
    nodes = nodes_of(made)
    last = {change.writer[0]: change.unix for change in made}
    slots: dict[str, list[Life]] = defaultdict(list)
    incarnations: dict[str, list[Life]] = defaultdict(list)
    for folder in apps.glob("*/*/containers/*"):
        began = _read(folder / "worker.json")
        if began is None:
            continue
        record, ended = _read(folder / "container.json") or {}, _read(folder / "exit.json") or {}
        until = ended.get("ended_at") or last.get(began["pid"], began["started_at"])
        life = Life(folder.name, float(began["started_at"]), float(until))
        app, job, _, _ = folder.name.rsplit(".", 3)
        incarnations[f"{app}/{job}"].append(life)
        if "slot" in record:
            slots[f"slot {record['slot']} of {nodes.get(folder.name, '?')}"].append(life)
    found = list(_pairs(slots))
    return found + list(_pairs(incarnations, of_gangs=True)) if jobs else found


def _pairs(lives: dict[str, list[Life]], *, of_gangs: bool = False) -> Iterator[str]:
    for place, all_ in lives.items():
        ordered = sorted(all_, key=lambda life: life.since)
        for number, one in enumerate(ordered):
            for other in ordered[number + 1 :]:
                mates = of_gangs and one.container.rsplit(".", 1)[0] == other.container.rsplit(".", 1)[0]
                if other.since < one.until and not mates:
                    yield f"{place}: {other} began while {one} lived"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        made: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return made
