"""An engine and an arbiter of a test: what is true of each node, and what the engine says of it, late or wrong."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eunomia_engines.engine import Engine, NodeState
from eunomia_engines.keeper.demand import AppNeed
from eunomia_engines.keeper.plan import Life, Member
from eunomia_engines.testing.fake import FakeCluster, FakeNode


@dataclass
class Truth(FakeNode):
    """A node as it is.

    Attributes:
        name: of the arbiter's node that its launcher became; empty: no launcher has begun.
        begun: its place in the order in which launchers began.
        held: slots that leases hold there.
        lives: whether processes of jobs live there.
        clean: whether its launcher has ended everything.
    """

    name: str = ""
    begun: int = 0
    held: int = 0
    lives: bool = False
    clean: bool = False


@dataclass
class World(FakeCluster):
    """All nodes, the engine that gives them, and the arbiter that uses them.

    Attributes:
        usable: slots that apps could use.
        members: the arbiter's nodes by name.
        wrong: what must never happen and did.
        cancelled: ids of the nodes that were given back.
        lost: ids of the nodes that did not count at some look: over or near their end by the engine's word, not listed,
            or given back.
    """

    chance: random.Random = field(default_factory=lambda: random.Random(0))
    is_late: bool = True
    usable: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    @property
    def asked(self) -> int:
        """Number of nodes that were asked for."""
        return len(self.nodes)

    @property
    def truths(self) -> Sequence[Truth]:
        """All nodes."""
        return [node for node in self.nodes.values() if isinstance(node, Truth)]

    def new_node(self, node: str, owner: str) -> Truth:
        return Truth(id=node, owner=owner, asked_at=self.now)

    # --- what the engine and the arbiter do by themselves ---------------------------------------------------------

    def give(self, node: FakeNode) -> None:
        """Give a machine to a node that waits and to its group, and begin their launchers, which join."""
        super().give(node)
        for one in self.group_of(node):
            self._begin(one)

    def _begin(self, node: FakeNode) -> None:
        assert isinstance(node, Truth)
        if not node.host or node.name:
            return
        for before in self.truths:
            if before.host == node.host:  # the launcher ends what the one before it left
                before.lives, before.held = False, 0
        node.name, node.lives = node.host, True
        node.begun = 1 + max(before.begun for before in self.truths)
        self.members[node.name] = Member(state="up")

    def over(self, node: Truth, *, clean: bool) -> None:
        """End a node; where it does not end cleanly, processes live on."""
        self.end(node)
        node.clean = clean
        if clean:
            node.lives, node.held = False, 0
        if node.name in self.members:
            self.members[node.name] = Member(state="down", held=node.held)

    def give_back(self, node: FakeNode) -> None:
        """End a node and its group cleanly."""
        for one in self.group_of(node):
            assert isinstance(one, Truth)
            self.cancelled.append(one.id)
            if one.held and one.state is NodeState.RUNS:
                self.wrong.append(f"{one.id} is given back although leases hold {one.held} slots")
            if one.state is not NodeState.ENDED:
                self.over(one, clean=True)

    def sync(self) -> None:
        """Let the arbiter see what leases hold, and let nodes that leave go once they are empty."""
        for node in self.truths:
            member = self.members.get(node.name)
            if member is None or node.state is not NodeState.RUNS:
                continue
            if member.leaves and node.held == 0:
                del self.members[node.name]
                self.over(node, clean=True)
                continue
            self.members[node.name] = Member(state=member.state, held=node.held, leaves=member.leaves)


class WorldArbiter:
    """The arbiter of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def members(self) -> Mapping[str, Member]:
        return {name: replace(member, slots=4) for name, member in self._world.members.items()}

    def needs(self) -> Sequence[AppNeed]:
        held = sum(node.held for node in self._world.truths)
        return [AppNeed(usable=self._world.usable, held=held)]

    def drain(self, name: str, why: str, within: float) -> None:
        world = self._world
        member = world.members[name]
        node = next(one for one in world.truths if one.name == name and one.state is NodeState.RUNS)
        if within > max(1.0, node.ends_at - world.now):
            world.wrong.append(f"leases on {name} may last {within} s, longer than the node")
        world.members[name] = Member(state="draining", held=member.held, leaves=member.leaves)

    def remove(self, name: str, why: str, *, is_off: bool) -> None:
        world = self._world
        if not is_off:
            member = world.members[name]
            world.members[name] = Member(state="draining", held=member.held, leaves=True)
            world.lost |= {node.id for node in world.truths if node.name == name}
            return
        if any(node.lives for node in world.truths if node.name == name):
            world.wrong.append(f"{name} is called off although its processes live")
        del world.members[name]


class WorldPilots:
    """The records of pilots in a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.dropped: set[str] = set()

    def lives(self, engine: Engine) -> Sequence[Life]:
        listed = {node.id: node for node in engine.nodes()}
        return [
            Life(id=node.id, node=listed.get(node.id), name=node.name, is_clean=node.clean)
            for node in sorted(self._world.truths, key=lambda node: node.begun)
            if node.id not in self.dropped and (node.id in listed or node.name)
        ]

    def forget(self, life: str) -> None:
        self.dropped.add(life)
