"""An engine and an arbiter of a test: what is true of each node, and what the engine says of it, late or wrong."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eunomia_engines.engine import Engine, EngineFinding, EngineNode, EngineRefusedError, EngineSilentError, NodeState
from eunomia_engines.keeper.demand import AppNeed
from eunomia_engines.keeper.plan import Life, Member


@dataclass
class Truth:
    """A node as it is.

    Attributes:
        state: of the engine's machine.
        said: the state that the engine says, which lags behind.
        name: of the arbiter's node that its launcher became; empty: no launcher has begun.
        begun: its place in the order in which launchers began.
        lives: whether processes of jobs live there.
        clean: whether its launcher has ended everything.
        listed: whether the engine still lists it.
        ends_at: end of its time, in seconds.
    """

    id: str
    host: str
    ends_at: float
    state: NodeState = NodeState.ASKED
    said: NodeState = NodeState.ASKED
    name: str = ""
    begun: int = 0
    held: int = 0
    lives: bool = False
    clean: bool = False
    listed: bool = True


@dataclass
class World:
    """All nodes, the engine that gives them, and the arbiter that uses them.

    Attributes:
        wrong: what must never happen and did.
    """

    chance: random.Random
    length: float = 3600.0
    now: float = 1000.0
    hosts: int = 4
    silent: bool = False
    refuses: bool = False
    usable: int = 0
    nodes: dict[str, Truth] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    asked: int = 0
    cancelled: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    """Nodes that did not count at some look: over or near their end by the engine's word, not listed, or given back."""

    # --- what the engine and the arbiter do by themselves ---------------------------------------------------------

    def begin(self, node: Truth) -> None:
        """Give a machine to a node that waits, and begin its launcher, which joins."""
        used = {one.host for one in self.nodes.values() if one.state is NodeState.RUNS}
        free = [f"h{number}" for number in range(self.hosts) if f"h{number}" not in used]
        if not free:
            return
        node.state, node.host, node.ends_at = NodeState.RUNS, free[0], self.now + self.length
        for before in self.nodes.values():
            if before.host == node.host:  # the launcher ends what the one before it left
                before.lives, before.held = False, 0
        node.name, node.lives = node.host, True
        node.begun = 1 + max(before.begun for before in self.nodes.values())
        self.members[node.name] = Member(state="up")

    def end(self, node: Truth, *, clean: bool) -> None:
        """End a node; where it does not end cleanly, processes live on."""
        node.state, node.clean = NodeState.ENDED, clean
        if clean:
            node.lives, node.held = False, 0
        if node.name in self.members:
            self.members[node.name] = Member(state="down", held=node.held)

    def tell(self, node: Truth) -> None:
        """Let the engine say what is true."""
        node.said = node.state

    def sync(self) -> None:
        """Let the arbiter see what leases hold, and let nodes that leave go once they are empty."""
        for node in self.nodes.values():
            member = self.members.get(node.name)
            if member is None or node.state is not NodeState.RUNS:
                continue
            if member.leaves and node.held == 0:
                del self.members[node.name]
                self.end(node, clean=True)
                continue
            self.members[node.name] = Member(state=member.state, held=node.held, leaves=member.leaves)


class WorldEngine:
    """The engine of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def check(self) -> Sequence[EngineFinding]:
        return ()

    def nodes(self) -> Sequence[EngineNode]:
        world = self._world
        if world.silent:
            raise EngineSilentError("the engine must answer")
        return [
            EngineNode(
                id=node.id,
                state=node.said,
                host=node.host,
                asked_at=world.now,
                began_at=None if node.said is NodeState.ASKED else world.now,
                ends_at=None if node.said is NodeState.ASKED else node.ends_at,
            )
            for node in world.nodes.values()
            if node.listed
        ]

    def ask(self, count: int) -> Sequence[str]:
        world = self._world
        if world.refuses:
            raise EngineRefusedError("the engine must accept", value="QOSMaxJobsPerUserLimit")
        made = [f"n{world.asked + index}" for index in range(count)]
        world.asked += count
        world.nodes |= {one: Truth(id=one, host="", ends_at=0.0) for one in made}
        return made

    def give_back(self, node: str) -> None:
        world, known = self._world, self._world.nodes[node]
        world.cancelled.append(node)
        if known.held and known.state is NodeState.RUNS:
            world.wrong.append(f"{node} is given back although leases hold {known.held} slots")
        if known.state is not NodeState.ENDED:
            world.end(known, clean=True)


class WorldArbiter:
    """The arbiter of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def members(self) -> Mapping[str, Member]:
        return {name: replace(member, slots=4) for name, member in self._world.members.items()}

    def needs(self) -> Sequence[AppNeed]:
        held = sum(node.held for node in self._world.nodes.values())
        return [AppNeed(usable=self._world.usable, held=held)]

    def drain(self, name: str, why: str, within: float) -> None:
        world = self._world
        member = world.members[name]
        node = next(one for one in world.nodes.values() if one.name == name and one.state is NodeState.RUNS)
        if within > max(1.0, node.ends_at - world.now):
            world.wrong.append(f"leases on {name} may last {within} s, longer than the node")
        world.members[name] = Member(state="draining", held=member.held, leaves=member.leaves)

    def remove(self, name: str, why: str, *, is_off: bool) -> None:
        world = self._world
        if not is_off:
            member = world.members[name]
            world.members[name] = Member(state="draining", held=member.held, leaves=True)
            world.lost |= {node.id for node in world.nodes.values() if node.name == name}
            return
        if any(node.lives for node in world.nodes.values() if node.name == name):
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
            for node in sorted(self._world.nodes.values(), key=lambda node: node.begun)
            if node.id not in self.dropped and (node.id in listed or node.name)
        ]

    def forget(self, life: str) -> None:
        self.dropped.add(life)
