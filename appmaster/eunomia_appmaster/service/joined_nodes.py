"""The nodes that have joined with a token: the number of each name's last join, and whether it is still valid."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

import structlog

from eunomia.journal.values import Note
from eunomia_appmaster.protocol.node_names import tls_name

log = structlog.get_logger()

JOINED_NOTE: Final = "joined_node"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JoinedNode:
    """The last join under a node's name; it is never dropped, so that no join number is used twice.

    Attributes:
        name: the node's name.
        join: number of its last join, from 1.
        address: IP address from which it joined.
        removed: whether the credential of that join is refused, because the operator has removed the node, or another
            machine joined with its token before it was accepted.
        token: number of the join token with which it joined, until its launcher is accepted; then 0.
        accepted_with: number of the join token of its last accepted join; 0 if not known, or it had none.
    """

    name: str
    join: int
    address: str = ""
    removed: bool = False
    token: int = 0
    accepted_with: int = 0

    def accepted(self) -> "JoinedNode":
        """Return the node's record after its launcher has registered and was accepted."""
        return dataclasses.replace(self, token=0, accepted_with=self.token)

    def superseded(self) -> "JoinedNode":
        """Return the record of a node that was not accepted before another machine joined with its token."""
        return dataclasses.replace(self, removed=True)

    def note(self) -> Note:
        """Return the node's note for the journal."""
        return Note(kind=JOINED_NOTE, key=self.name, value=dataclasses.asdict(self))


class JoinedNodes:
    """All joins, by node name.

    Args:
        notes: an earlier arbiter's notes, by node name.
    """

    def __init__(self, notes: Mapping[str, Any]) -> None:
        self._nodes: dict[str, JoinedNode] = {}
        self._plain: set[str] = set()
        """Nodes of the arbiter's machine that have a join but whose launchers serve on loopback now."""
        for name, content in notes.items():
            node = _read(name, content)
            if node is None:
                log.error("joined_node.note_unreadable", node=name)
            else:
                self._nodes[name] = node

    def get(self, name: str) -> JoinedNode | None:
        """Return a node of the cluster; None if it has not joined, or was removed."""
        node = self._nodes.get(name)
        return None if node is None or node.removed else node

    def join_of(self, name: str) -> int | None:
        """Return the number of a node's present join; None if it has no valid one."""
        node = self.get(name)
        return None if node is None else node.join

    def is_over(self, name: str, join: int) -> bool:
        """Return whether a join was replaced by a later one, or its node was removed.

        False for an unknown join, which may be newer than a journal restored from a backup.
        """
        node = self._nodes.get(name)
        return node is not None and (join < node.join or (join == node.join and node.removed))

    def token_lost(self, name: str, join: int) -> int:
        """Return the number of the join token with which another machine has replaced this join; 0 if none has."""
        node = self._nodes.get(name)
        return node.token if node is not None and node.removed and join == node.join else 0

    def members(self, token: int, used_by: Iterable[str]) -> list[str]:
        """Return the nodes of the cluster whose present join used a token.

        Args:
            token: its number.
            used_by: all nodes that ever joined with it; those whose present token is unknown are included.
        """
        names = dict.fromkeys(used_by)
        return [name for name in names if (node := self.get(name)) is not None and node.accepted_with in (0, token)]

    def certificate_name(self, name: str) -> str:
        """Return the name in the certificate of a node's launcher; empty if it serves without TLS."""
        join = self.join_of(name)
        return "" if join is None or name in self._plain else tls_name(name, join)

    def serves(self, name: str, *, plain: bool) -> None:
        """Record whether a node's launcher serves without TLS, on the loopback interface of the arbiter's machine."""
        if plain:
            self._plain.add(name)
        else:
            self._plain.discard(name)

    def knows(self, name: str) -> bool:
        """Return whether a node has ever joined under a name, according to the notes that are left."""
        return name in self._nodes

    def next(self, name: str, address: str, *, least: int = 1, token: int = 0) -> JoinedNode:
        """Return a node's record after its next join; call ``keep`` to store it.

        Args:
            name: the node's name.
            address: IP address from which it joins.
            least: lowest allowed number of the join.
            token: number of the join token.
        """
        before = self._nodes.get(name)
        number = max(least, 1 if before is None else before.join + 1)
        return JoinedNode(name=name, join=number, address=address, token=token)

    def awaited(self, token: int) -> list[JoinedNode]:
        """Return the nodes that joined with a token and whose launchers are not accepted yet."""
        return [node for node in self._nodes.values() if node.token == token and not node.removed]

    def without(self, name: str) -> JoinedNode | None:
        """Return a node's record after its removal by the operator; None if there is no such node."""
        node = self.get(name)
        return None if node is None else dataclasses.replace(node, removed=True, token=0)

    def last(self, name: str) -> JoinedNode | None:
        """Return the last join under a name, removed or not; None if there is none."""
        return self._nodes.get(name)

    def put_back(self, name: str, node: JoinedNode | None) -> None:
        """Restore the previous record of a name after a change that could not be journaled."""
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node

    def keep(self, node: JoinedNode) -> None:
        """Store a new or changed node in memory; the caller journals its note."""
        self._nodes[node.name] = node


def _read(name: str, content: Any) -> JoinedNode | None:
    try:
        node = JoinedNode(**content)
    except TypeError:
        return None
    return node if node.name == name and isinstance(node.join, int) and node.join >= 1 else None
