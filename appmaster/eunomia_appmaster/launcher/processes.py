"""Processes by ``/proc``: their identity despite reuse of pids, and the container of each process.

A container's processes are found in three ways, to include children that forked, called ``setsid`` or lost their
parents: as descendants of its shepherd or worker, by the worker's session, and by the mark ``EUNOMIA_CONTAINER_ID`` in
their environment. A process that evades all three, with a session of its own, an emptied environment and a killed
shepherd, is found by its container's control group, or as an orphan (``orphans.py``).
"""

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MARK = "EUNOMIA_CONTAINER_ID"
NODE = "EUNOMIA_NODE"  # the launcher that a marked process belongs to
_GONE = frozenset("ZXx")  # zombies hold no memory and no device


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid with the time at which its process started (clock ticks since boot): unique until the next boot."""

    pid: int
    start_time: int

    @property
    def alive(self) -> bool:
        """Return whether this very process still runs; a zombie does not."""
        stat = read_stat(self.pid)
        return stat is not None and stat.start_time == self.start_time

    def signal(self, number: int) -> bool:
        """Send a signal to this process, never to a later one of the same pid; returns whether it was alive."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive:
                return False
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True


@dataclass(frozen=True, slots=True)
class Stat:
    """Fields of ``/proc/<pid>/stat`` of a process that is not a zombie."""

    parent: int
    session: int
    start_time: int


def read_stat(pid: int) -> Stat | None:
    """Read fields 4, 6, 22 (parent, session, start time) of ``/proc/<pid>/stat``; None for no process or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold blanks and brackets
    if fields[0].decode() in _GONE:
        return None
    return Stat(parent=int(fields[1]), session=int(fields[3]), start_time=int(fields[19]))


def identify(pid: int) -> ProcessId | None:
    """Return pid and start time of a running process; None if there is none."""
    stat = read_stat(pid)
    return None if stat is None else ProcessId(pid, stat.start_time)


def members(mark: str, worker: ProcessId | None, shepherd: ProcessId | None) -> list[ProcessId]:
    """Return all living processes of a container, found by descent, session or mark, without its shepherd."""
    table = _table()
    roots = {known.pid for known in (worker, shepherd) if known is not None and known.alive}
    found = _descendants(table, roots)
    if worker is not None and (worker.pid not in table or worker.pid in roots):  # else its pid was reused
        found |= {pid for pid, stat in table.items() if stat.session == worker.pid}
    found |= {pid for pid in table if pid not in found and _has_mark(pid, mark)}
    found -= {os.getpid()} | ({shepherd.pid} if shepherd is not None else set())
    return [ProcessId(pid, table[pid].start_time) for pid in found]


def marks(node: str) -> set[str]:
    """Return the marks of all containers with a process on this machine, except those of other nodes' launchers."""
    found: set[str] = set()
    for pid in _table():
        known = dict(line.partition(b"=")[::2] for line in _environment(pid))
        mark, of = known.get(MARK.encode()), known.get(NODE.encode(), b"").decode(errors="replace")
        if mark is not None and of in ("", node):
            found.add(mark.decode(errors="replace"))
    return found


def kill(processes: Iterable[ProcessId]) -> None:
    """Send SIGKILL to each process."""
    for process in processes:
        process.signal(signal.SIGKILL)


def children_outside_session() -> list[ProcessId]:
    """Return the living children of this process that are not in its session."""
    me, session = os.getpid(), os.getsid(0)
    found = ((pid, stat) for pid, stat in _table().items() if stat.parent == me and stat.session != session)
    return [ProcessId(pid, stat.start_time) for pid, stat in found]


def environment_mark(pid: int) -> str:
    """Return the container's mark in a process's environment; empty: it has none."""
    start = f"{MARK}=".encode()
    return next((one[len(start) :].decode(errors="replace") for one in _environment(pid) if one.startswith(start)), "")


def with_descendants(pids: Iterable[int]) -> set[int]:
    """Return the pids of those processes that are alive, and of all their living descendants."""
    return _descendants(_table(), set(pids))


def _table() -> dict[int, Stat]:
    stats = ((int(name), read_stat(int(name))) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - ten times faster
    return {pid: stat for pid, stat in stats if stat is not None}


def _descendants(table: dict[int, Stat], roots: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, stat in table.items():
        children.setdefault(stat.parent, []).append(pid)
    found: set[int] = set()
    stack = [pid for pid in roots if pid in table]
    while stack:
        pid = stack.pop()
        if pid not in found:
            found.add(pid)
            stack.extend(children.get(pid, ()))
    return found


def _has_mark(pid: int, mark: str) -> bool:
    return f"{MARK}={mark}".encode() in _environment(pid)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return []
