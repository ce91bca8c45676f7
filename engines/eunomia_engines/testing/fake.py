"""An engine in memory, whose reports of its nodes' states may be late, duplicate or wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eunomia_engines.engine import (
    EngineFinding,
    EngineNode,
    EngineRefusedError,
    EngineSilentError,
    NodeState,
    each_once,
)


@dataclass
class FakeNode:
    """A node: its true state, and the states that the engine lists.

    Attributes:
        owner: owner of the node; an engine lists the nodes of one owner only.
        state: the node's true state.
        said: the states that the engine lists for the node, one entry each; empty: it is not listed.
        ends_at: Unix time in seconds at which its time ends; 0: it has not started.
        group: id of the group with which it starts and ends; empty: it stands alone.
    """

    id: str
    owner: str
    asked_at: float
    state: NodeState = NodeState.ASKED
    said: tuple[NodeState, ...] = (NodeState.ASKED,)
    host: str = ""
    began_at: float = 0.0
    ends_at: float = 0.0
    group: str = ""


@dataclass
class FakeCluster:
    """The nodes of all owners.

    Attributes:
        hosts: number of machines.
        length: length of a node's time, in seconds.
        now: the present Unix time in seconds.
        is_late: whether the engine's list changes only when ``tell`` is called.
        is_silent: whether the engine does not answer.
        refusal: the engine's message for any further request; empty: it refuses none.
        most_at_once: maximum number of nodes per call of ``ask``.
        group: number of nodes that are given together; 1: each stands alone.
    """

    hosts: int = 4
    length: float = 3600.0
    now: float = 1000.0
    is_late: bool = False
    is_silent: bool = False
    refusal: str = ""
    most_at_once: int = 10_000
    group: int = 1
    nodes: dict[str, FakeNode] = field(default_factory=dict)

    def give(self, node: FakeNode) -> None:
        """Start a waiting node and its group on free machines, if there are enough."""
        used = {one.host for one in self.nodes.values() if one.state is NodeState.RUNS}
        free = [f"h{number}" for number in range(self.hosts) if f"h{number}" not in used]
        together = self.group_of(node)
        if node.state is not NodeState.ASKED or len(free) < len(together):
            return
        for one, host in zip(together, free, strict=False):
            one.state, one.host = NodeState.RUNS, host
            one.began_at, one.ends_at = self.now, self.now + self.length
            self._changed(one)

    def group_of(self, node: FakeNode) -> Sequence[FakeNode]:
        """Return the nodes that start and end together with a node, including the node."""
        return [one for one in self.nodes.values() if one is node or (node.group and one.group == node.group)]

    def end(self, node: FakeNode) -> None:
        """Set a node's state to ``ENDED``."""
        node.state = NodeState.ENDED
        self._changed(node)

    def tell(self, node: FakeNode) -> None:
        """Make the engine list the node's true state."""
        node.said = (node.state,)

    def ask(self, owner: str, count: int) -> Sequence[FakeNode]:
        """Add waiting nodes, in whole groups, and return them; raises ``EngineRefusedError`` if ``refusal`` is set."""
        if self.refusal:
            raise EngineRefusedError("the engine must accept what it is asked for", value=f'"{self.refusal}"')
        count = min(count, self.most_at_once)
        count -= count % self.group
        made = [self.new_node(f"n{len(self.nodes) + index}", owner) for index in range(count)]
        for index, node in enumerate(made):
            node.group = f"g{len(self.nodes) + index // self.group}" if self.group > 1 else ""
        self.nodes |= {node.id: node for node in made}
        return made

    def new_node(self, node: str, owner: str) -> FakeNode:
        """Create a node that waits, without adding it to the cluster."""
        return FakeNode(id=node, owner=owner, asked_at=self.now)

    def give_back(self, node: FakeNode) -> None:
        """End a node that its owner gives back, and its group; no effect on nodes that have ended."""
        for one in self.group_of(node):
            if one.state is not NodeState.ENDED:
                self.end(one)

    def _changed(self, node: FakeNode) -> None:
        if not self.is_late:
            self.tell(node)


class FakeEngine:
    """The nodes of one owner at a cluster.

    Args:
        cluster: contains the nodes.
        owner: the owner of the nodes.
    """

    def __init__(self, cluster: FakeCluster, owner: str = "") -> None:
        self._cluster, self._owner = cluster, owner

    def nodes(self) -> Sequence[EngineNode]:
        """Return the owner's nodes as the cluster lists them."""
        self._answers()
        return each_once(
            EngineNode(
                id=node.id,
                state=said,
                host="" if said is NodeState.ASKED else node.host,
                asked_at=node.asked_at,
                began_at=None if said is NodeState.ASKED else node.began_at,
                ends_at=None if said is NodeState.ASKED else node.ends_at,
                group=node.group,
            )
            for node in self._cluster.nodes.values()
            for said in node.said
            if node.owner == self._owner
        )

    def ask(self, count: int) -> Sequence[str]:
        """Request nodes, and return their ids."""
        self._answers()
        return [node.id for node in self._cluster.ask(self._owner, count)]

    def give_back(self, node: str) -> None:
        """End a node; no effect if the id is unknown, or the node belongs to another owner."""
        self._answers()
        known = self._cluster.nodes.get(node)
        if known is not None and known.owner == self._owner:
            self._cluster.give_back(known)

    def _answers(self) -> None:
        if self._cluster.is_silent:
            raise EngineSilentError("the engine must answer")


class FakeKind:
    """The engine of a cluster in memory; the name of the state folder is the owner of its nodes.

    Args:
        cluster: contains the nodes; None: a new cluster.
    """

    def __init__(self, cluster: FakeCluster | None = None) -> None:
        self._cluster = FakeCluster() if cluster is None else cluster

    def check(self) -> Sequence[EngineFinding]:
        """Return whether the cluster answers."""
        is_good = not self._cluster.is_silent
        text = f"{self._cluster.hosts} machines in memory" if is_good else "the cluster must answer"
        return [EngineFinding(is_good=is_good, text=text)]

    def engine(self, state: Path) -> FakeEngine:
        """Return the engine of a state folder."""
        return FakeEngine(self._cluster, str(state))
