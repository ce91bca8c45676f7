"""Bounds on connections: closes connections without a valid token, and reserves descriptors for the others."""

import asyncio
import contextlib
import dataclasses
import ipaddress
import os
import resource
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import structlog

from eunomia_appmaster.node.system import MACHINE, System

log = structlog.get_logger()

HURRIED_SECONDS: Final = 1.0
"""Most seconds without a token while at most ``KEPT`` connections are free."""
KEPT: Final = 64
"""Number of connections reserved for callers with a token, such as launchers and the operator."""
OWN_FILES: Final = 128
"""Number of descriptors reserved for the journal, logs, metrics and the process itself."""
MOST: Final = 100_000
PATIENCE_SECONDS: Final = 20.0
"""Default for the seconds that a connection may exist without a valid token."""
LOOK_SECONDS: Final = 1.0
_DESCRIPTORS: Final = Path("/proc/self/fd")

Peer = tuple[str, int]


def raise_descriptors() -> None:
    """Raise this process's limit of open files to the most that its user may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some kernels have no such number of files
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections() -> int:
    """Return the number of connections that this process can accept, by its limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(2 * KEPT, soft - OWN_FILES))


@dataclasses.dataclass(slots=True)
class _Seen:
    """An open connection, identified by its socket's inode."""

    inode: int
    peer: Peer
    since: float
    has_token: bool = False


class Connections:
    """The connections to one port of this process.

    Args:
        most: most connections that the server accepts; see ``most_connections``.
        patience_seconds: seconds that a connection may last without a call that carries a valid token.
        system: the clock.
    """

    def __init__(self, most: int, *, patience_seconds: float, system: System = MACHINE) -> None:
        self.port = 0
        """The server's port; set once it is bound."""
        self.most = most
        self._patience, self._system = patience_seconds, system
        self._open: dict[int, _Seen] = {}
        self._with_token: set[Peer] = set()

    def vouch(self, peer: str) -> None:
        """Record a call with a valid token; ``peer`` is gRPC's name of its connection: ``ipv4:127.0.0.1:5000``."""
        found = peer_of_text(peer)
        if found is not None:
            self._with_token.add(found)

    def look(self) -> int:
        """Close connections that have existed too long without a token; returns the number closed."""
        noted, self._with_token = self._with_token, set()
        now = self._system.monotonic()
        self._open = {number: self._seen(number, inode, now) for number, inode in _sockets()}
        here = {number: one for number, one in self._open.items() if one.peer[1]}
        for one in here.values():
            one.has_token = one.has_token or one.peer in noted
        patience = HURRIED_SECONDS if len(here) > self.most - KEPT else self._patience
        late = [(number, one) for number, one in here.items() if not one.has_token and now - one.since > patience]
        return sum(_shut(number, one.inode) for number, one in late)

    def _seen(self, number: int, inode: int, now: float) -> _Seen:
        before = self._open.get(number)
        if before is not None and before.inode == inode:
            return before
        return _Seen(inode=inode, peer=_peer(number, self.port), since=now)


async def watch(connections: Connections | None) -> None:
    """Close connections without a token until cancelled."""
    while connections is not None:
        await asyncio.sleep(LOOK_SECONDS)
        with contextlib.suppress(OSError):  # no descriptor is free to look with: the next look may find one
            closed = await asyncio.to_thread(connections.look)
            if closed:
                log.warning("connections.closed", count=closed, why="no call with a valid token came")


def peer_of_text(text: str) -> Peer | None:
    """Parse gRPC's name of a peer to address and port; None: it is not an internet address."""
    kind, _, rest = unquote(text).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return _plain(host.strip("[]"), int(port))


def _plain(host: str, port: int) -> Peer:
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), port


def _sockets() -> Iterator[tuple[int, int]]:
    """Yield descriptor and inode of this process's sockets."""
    for path in _DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            state = os.fstat(int(path.name))
            if stat.S_ISSOCK(state.st_mode):
                yield int(path.name), state.st_ino


def _peer(number: int, port: int) -> Peer:
    """Return the peer of a connection to the server's port; port 0 if the socket is not such a connection."""
    try:
        with socket.socket(fileno=os.dup(number)) as copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.getsockname()[1] == port:
                return _plain(*copy.getpeername()[:2])
    except OSError:
        pass
    return "", 0


def _shut(number: int, inode: int) -> bool:
    """Shut down a connection, unless its descriptor belongs to another file by now."""
    try:
        with socket.socket(fileno=os.dup(number)) as copy:
            if os.fstat(copy.fileno()).st_ino != inode:
                return False
            copy.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:
        return False
