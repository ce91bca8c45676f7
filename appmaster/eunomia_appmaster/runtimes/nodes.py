"""The runtimes of all nodes on which an app may run workers, and the start of a gang over several nodes."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import structlog

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol.connecting import Address
from eunomia_appmaster.runtimes.local import LauncherRuntime, Owner
from eunomia_appmaster.runtimes.runtime import (
    Away,
    ContainerStatus,
    GangSpec,
    LiveSpec,
    Prepared,
    RefusedError,
    Runtime,
    RuntimeAwayError,
)

log = structlog.get_logger()

UNREACHABLE_SECONDS = 10.0
"""Seconds without an answer after which the app master counts a node as unreachable."""
PATIENCE_SECONDS = 1.0
CALL_SECONDS = 3.0
"""Seconds after which a call to another node is given up; few, since the calling app master waits for it."""


@value
class NodeAccess:
    """The arbiter's data about a node: the address of its launcher, and the app's token there."""

    node: str
    address: str
    token: str
    certificate_name: str = ""
    """Name in the launcher's certificate; empty: it serves without TLS."""
    lost: bool = False
    """Whether the node was silent for longer than the arbiter's limit, so that its leases have ended."""
    clock_ahead: float = 0.0
    """Seconds by which the node's clock is ahead of the arbiter's; 0 for negligible offsets."""


class NodeRuntimes:
    """The runtimes of an app's nodes. Thread-safe.

    The app master's own node is always one of them. Runtimes of other nodes are created when the app has slots or a
    gang there, and closed when it no longer has either.

    Args:
        app: owner of the containers.
        own: the runtime of the app master's own node.
        own_node: name of the app master's own node.
        login: the account under which the containers run; empty: the launchers' own.
        attempt: number of the app master's attempt, from 1; 0: not known.
        system: clocks, threads and connections of the machine.
    """

    def __init__(
        self,
        app: str,
        own: Runtime,
        own_node: str,
        *,
        login: str = "",
        attempt: int = 0,
        system: System = MACHINE,
    ) -> None:
        self.own_node = own_node
        self._owner = Owner(app=app, login=login, attempt=attempt)
        self._system = system
        self._lock = system.lock()
        self._runtimes: dict[str, Runtime] = {own_node: own}
        self._ready: set[str] = set()
        """Nodes whose runtimes have delivered a full report."""
        self._access: dict[str, NodeAccess] | None = None
        self.authority = b""
        """The CA of nodes' certificates, PEM; empty: no node uses TLS."""

    # -- which nodes there are

    def hear(self, nodes: Iterable[NodeAccess]) -> None:
        """Update the nodes from the arbiter's list of all nodes of the cluster.

        A restarted arbiter does not know the address of a node that has not registered again; its last address is kept.
        """
        with self._lock:
            before = self._access or {}
            self._access = {
                access.node: access
                if access.address or access.node not in before
                else dataclasses.replace(access, address=before[access.node].address)
                for access in nodes
            }

    def keep(self, nodes: Collection[str]) -> None:
        """Keep or create the runtimes of ``nodes``, keep that of the own node, and close all others."""
        with self._lock:
            for node in nodes:
                if node not in self._runtimes:
                    self._runtimes[node] = self._make(node)
            over = [node for node in self._runtimes if node not in nodes and node != self.own_node]
            closing = [self._runtimes.pop(node) for node in over]
            self._ready -= set(over)
        for runtime in closing:
            runtime.close()

    def all(self) -> dict[str, Runtime]:
        """Return all runtimes by node."""
        with self._lock:
            return dict(self._runtimes)

    def of(self, node: str) -> Runtime:
        """Return the runtime of a node; create it if there is none."""
        with self._lock:
            if node not in self._runtimes:
                self._runtimes[node] = self._make(node)
            return self._runtimes[node]

    def is_lost(self, node: str) -> bool:
        """Return whether a node is lost according to the arbiter, or no longer part of the cluster."""
        with self._lock:
            if self._access is None or node == self.own_node:
                return False
            return node not in self._access or self._access[node].lost

    def clock_ahead(self, node: str) -> float:
        """Return the seconds by which a node's clock is ahead of the arbiter's; 0 if the arbiter reports no offset."""
        with self._lock:
            known = (self._access or {}).get(node)
        return 0.0 if known is None else known.clock_ahead

    def unix_time(self) -> float:
        """Return Unix seconds by the arbiter's clock."""
        return self._system.unix_time() - self.clock_ahead(self.own_node)

    def is_ready(self, node: str) -> bool:
        """Return whether a node has delivered a full report, and answered the last call.

        The own node counts as ready after its report, since all calls wait for its launcher.
        """
        return node in self._ready and (node == self.own_node or self._away(node) is None)

    def is_unreachable(self, node: str) -> bool:
        """Return whether a node other than the app master's has not answered for ``UNREACHABLE_SECONDS``."""
        away = self._away(node)
        return node != self.own_node and away is not None and self._system.uptime() - away.since >= UNREACHABLE_SECONDS

    def why_away(self, node: str) -> str:
        """Return why a node did not answer the last call; empty: it did."""
        away = self._away(node)
        return "" if away is None else away.why

    def address(self, node: str) -> str:
        """Return the address of a node's launcher; empty: not known."""
        known = (self._access or {}).get(node)
        return "" if known is None else known.address

    def up(self) -> set[str]:
        """Return the nodes that are not lost."""
        with self._lock:
            return {self.own_node} | {node for node, access in (self._access or {}).items() if not access.lost}

    def reported(self, node: str, runtime: Runtime) -> None:
        """Record that a runtime has delivered its first, full report; a runtime that was closed is ignored."""
        with self._lock:
            if self._runtimes.get(node) is runtime:
                self._ready.add(node)

    def has_settled(self, nodes: Iterable[str]) -> bool:
        """Return whether each of these nodes has delivered a full report, is lost or is unreachable."""
        return all(node in self._ready or self.is_lost(node) or self.is_unreachable(node) for node in nodes)

    def _away(self, node: str) -> Away | None:
        with self._lock:
            runtime = self._runtimes.get(node)
        return None if runtime is None else runtime.away

    def close(self) -> None:
        """Close all connections; containers keep running."""
        for runtime in self.all().values():
            runtime.close()

    def _make(self, node: str) -> Runtime:
        return LauncherRuntime(
            self._owner,
            node,
            lambda: self._access_to(node),
            patience_seconds=PATIENCE_SECONDS,
            call_seconds=CALL_SECONDS,
            fails_fast=True,
            system=self._system,
        )

    def _access_to(self, node: str) -> tuple[Address, str]:
        known = (self._access or {}).get(node)
        if known is None or not known.address:
            raise InputError("the arbiter must say where the launcher of a node listens", value="nothing", place=node)
        if known.certificate_name:
            return Address(target=known.address, authority=self.authority, name=known.certificate_name), known.token
        return Address(target=known.address), known.token

    # -- gangs

    def start(self, parts: Mapping[str, GangSpec], *, wait_seconds: float = 0.0) -> tuple[ContainerStatus, ...]:
        """Start the workers of a gang on all of its nodes, or on none. Idempotent.

        A gang on one node takes one call. Over several nodes, each node prepares its part, the node of rank 0 first
        since it reserves the gang's port; once all are prepared, each is ordered to start. After an error some nodes
        may be prepared or started: repeating the call continues from there, and ``undo`` cancels the start.

        Args:
            parts: the part of the gang by node, that of the node of rank 0 first.
            wait_seconds: seconds to wait on each node for the slots' previous containers to end.

        Raises:
            LeaseOverError, SlotBusyError, RefusedError, RuntimeAwayError: as ``Runtime.start``, with the node.
        """
        if len(parts) == 1:
            ((node, part),) = parts.items()
            return self.of(node).start(part, wait_seconds=wait_seconds)
        prepared: list[Prepared] = []
        for node, part in parts.items():
            port = prepared[0].master_port if prepared else None
            part = dataclasses.replace(part, master_port=port, live=_at_store(part.live, prepared))
            made = self.of(node).prepare(part, wait_seconds=wait_seconds)
            prepared.append(made)
            if any(status.completed for status in made.statuses):  # it was given up: the others must not start
                return tuple(status for one in prepared for status in one.statuses)
        return tuple(
            status
            for node, part in parts.items()
            for status in self.of(node).go([spec.container_id for spec in part.containers])
        )

    def undo(self, containers: Mapping[str, Sequence[str]], reason: str) -> None:
        """Cancel a start at once on each node that answers.

        On a node that does not answer, prepared containers are given up by timeout.

        Args:
            containers: ids by node.
            reason: the reason that the containers' statuses report.
        """
        for node, ids in containers.items():
            try:
                self.of(node).stop(ids, deadline_seconds=0.0, reason=reason)
            except (RefusedError, RuntimeAwayError) as error:  # it does not know them, or does not answer
                log.info("gang.not_undone", node=node, containers=list(ids), why=str(error))


def _at_store(live: LiveSpec | None, prepared: Sequence[Prepared]) -> LiveSpec | None:
    """Return the generation of a gang with the address of its store, which its first node has started."""
    reports = (status.live for status in prepared[0].statuses) if prepared else ()
    store = next((report.store for report in reports if report is not None and report.store), "")
    return live if live is None or not store else dataclasses.replace(live, store=store)
