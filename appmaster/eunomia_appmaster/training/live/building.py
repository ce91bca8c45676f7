"""Builds the process groups of coming generations in threads, while their members still train in the present one."""

import contextlib
import threading
import time
from collections.abc import Callable

from eunomia.errors import EunomiaError
from eunomia_appmaster.training.changes import Membership
from eunomia_appmaster.training.live.groups import CONNECT_SECONDS, PeerGroup, PeerLostError, Peers
from eunomia_appmaster.training.live.rendezvous import Rendezvous

EARLY_SECONDS = 2.0
"""Longest time in seconds for which a change waits for its group; then the group is built at the step boundary."""


class Builder:
    """The groups that are being built, one per generation.

    Args:
        address: address of the job's store; each thread has its own connection, since calls on one are serialized.
        name: name of this worker.
        peers: reports to the groups whether a peer is gone.
        timeout_seconds: longest time in seconds for which an operation of a group waits for a peer.
    """

    def __init__(self, address: str, name: str, *, peers: Peers, timeout_seconds: float) -> None:
        self._address, self._name, self._peers, self._timeout_seconds = address, name, peers, timeout_seconds
        self._building: dict[int, _Building] = {}

    def begin(self, change: Membership) -> None:
        """Begin to build the group of a generation of which this worker is a member, unless it has begun already."""
        if change.generation not in self._building:
            self._building[change.generation] = _Building(lambda: self._built(change))

    def is_due(self, change: Membership) -> bool:
        """Return whether to wait no longer for a generation's group: it is built, has failed, or takes too long."""
        building = self._building.get(change.generation)
        return building is None or building.over or building.seconds > EARLY_SECONDS

    def take(self, generation: int) -> PeerGroup | None:
        """Remove and return the group of a generation that all members have built; None: it was not built here."""
        building = self._building.pop(generation, None)
        return None if building is None else building.take()

    def drop(self) -> None:
        """Close all groups that were not taken, also those that are still being built."""
        while self._building:
            self._building.popitem()[1].drop()

    def _built(self, change: Membership) -> PeerGroup:
        meeting = Rendezvous(self._address, CONNECT_SECONDS)
        try:
            meeting.calls_for(change.generation)
            made = meeting.made_with(
                lambda store: PeerGroup(
                    store,
                    change.members.index(self._name),
                    len(change.members),
                    host=meeting.host,
                    timeout_seconds=self._timeout_seconds,
                    peers=self._peers,
                ),
                change.generation,
                CONNECT_SECONDS,
                "early",
            )
            made.warm_up()
            meeting.has_built(change.generation, self._name)
        finally:
            meeting.close()
        return made


class _Building:
    """One group that is built in a thread."""

    def __init__(self, build: Callable[[], PeerGroup]) -> None:
        self.over = False
        self._build = build
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._group: PeerGroup | None = None
        self._unwanted = False
        threading.Thread(target=self._run, daemon=True, name="build-group").start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def take(self) -> PeerGroup | None:
        with self._lock:
            group, self._group, self._unwanted = self._group, None, True
        return group

    def drop(self) -> None:
        group = self.take()
        if group is not None:
            group.close()

    def _run(self) -> None:
        group = None
        with contextlib.suppress(PeerLostError, EunomiaError):  # the group is built at the boundary instead
            group = self._build()
        with self._lock:
            if not self._unwanted:
                self._group, group = group, None
        self.over = True
        if group is not None:
            group.close()
