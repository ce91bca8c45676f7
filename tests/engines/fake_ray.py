"""A Ray cluster in memory, in the form in which ``RayDriver`` tells of a real one."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eunomia_engines.engine import EngineSilentError
from eunomia_engines.ray.cluster import NewActor, RayActor, RayNode
from eunomia_engines.ray.engine import RayEngine, RayKind
from eunomia_engines.ray.request import RayRequest, namespace_of
from eunomia_engines.testing.conformance import Saying


def ray_node(number: int, *, gpus: float = 4.0, alive: bool = True) -> RayNode:
    """A node with free GPUs and CPUs."""
    made = RayNode(id=f"node{number}", host=f"gpu{number}", address=f"10.0.0.{number}", alive=alive)
    return made.model_copy(update={"gpus": gpus, "free_gpus": gpus, "cpus": 8.0, "free_cpus": 8.0})


@dataclass
class FakeRay:
    """A cluster; its actors hold GPUs until they are dead.

    Attributes:
        machines: its nodes, as they are without actors.
        table: its actors by id, alive and dead.
        namespace: of the arbiter that calls it.
        said: rows that are listed of an actor instead of the true one.
        wanted: what the autoscaler was asked for.
        ended: names of actors that were ordered to end; a test decides when they do.
        is_silent: it does not answer.
    """

    machines: list[RayNode] = field(default_factory=lambda: [ray_node(number) for number in range(1, 4)])
    table: dict[str, RayActor] = field(default_factory=dict)
    namespace: str = ""
    said: dict[str, Sequence[RayActor]] = field(default_factory=dict)
    wanted: list[Mapping[str, float]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    is_silent: bool = False

    def version(self) -> str:
        self._answers()
        return "Ray 2.60.0, Python 3.11"

    def address(self) -> str:
        self._answers()
        return "10.0.0.1:6379"

    def nodes(self) -> Sequence[RayNode]:
        self._answers()
        return [node.model_copy(update={"free_gpus": node.free_gpus - self._held(node.id)}) for node in self.machines]

    def actors(self) -> Sequence[RayActor]:
        self._answers()
        return [row for actor in self.table.values() for row in self.said.get(actor.id, (actor,))]

    def create(self, new: NewActor) -> str:
        self._answers()
        made = RayActor(
            id=f"actor{len(self.table)}",
            name=new.name,
            namespace=self.namespace,
            class_name="EunomiaLauncher",
            state="PENDING_CREATION",
            node=new.node,
            gpus=new.gpus,
        )
        self.table[made.id] = made
        return made.id

    def end(self, actor: str) -> None:
        self._answers()
        self.ended.append(actor)
        self.kill(actor)

    def kill(self, actor: str) -> None:
        self._answers()
        for row in list(self.table.values()):
            if row.name == actor and row.namespace == self.namespace and row.state != "DEAD":
                self.change(row.id, state="DEAD", why="killed")

    def want(self, bundles: Sequence[Mapping[str, float]]) -> None:
        self._answers()
        self.wanted = list(bundles)

    def change(self, actor: str, **changed: object) -> None:
        """Change what is true of an actor."""
        self.table[actor] = self.table[actor].model_copy(update=changed)

    def _held(self, node: str) -> float:
        return sum(row.gpus for row in self.table.values() if row.node == node and row.state != "DEAD")

    def _answers(self) -> None:
        if self.is_silent:
            raise EngineSilentError("a Ray cluster must answer")


class FakeRayKind(RayKind):
    """The engine with one view of a cluster in memory for each state folder."""

    def __init__(self, cluster: FakeRay) -> None:
        super().__init__(cluster)
        self._shared = cluster

    def engine(self, state: Path) -> RayEngine:
        """The engine of a state folder."""
        view = _View(self._shared, namespace_of(state))
        return RayEngine(RayRequest.load(state), state, view)  # type: ignore[arg-type]


class _View:
    """A cluster as one arbiter calls it, in its own namespace."""

    def __init__(self, cluster: FakeRay, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace

    def __getattr__(self, name: str) -> object:
        self._cluster.namespace = self._namespace
        return getattr(self._cluster, name)


class FakeRayLab:
    """A cluster in memory that a test moves.

    Args:
        folder: of the two state folders.
    """

    sayings = frozenset(Saying)
    seconds = 0.0

    def __init__(self, folder: Path) -> None:
        self.cluster = FakeRay()
        self.states = (folder / "a", folder / "b")
        for state in self.states:
            (state / "engine" / "ray").mkdir(parents=True)
            RayRequest(address="10.0.0.1:6379").save(state)
        self.kind = FakeRayKind(self.cluster)

    def give(self, node: str) -> None:
        self.cluster.change(node, state="ALIVE", began_at=time.time())

    def end(self, node: str) -> None:
        self.cluster.change(node, state="DEAD", why="killed by hand")

    def say(self, node: str, saying: Saying) -> None:
        true = self.cluster.table[node]
        self.cluster.said[node] = {
            Saying.STRANGE_STATE: (true.model_copy(update={"state": "FROZEN"}),),
            Saying.TWICE: (true, true),
            Saying.CONTRADICTION: (true, true.model_copy(update={"state": "DEAD"})),
            Saying.NO_TIMES: (true.model_copy(update={"began_at": None}),),
            Saying.NOT_LISTED: (),
        }[saying]

    def refuse(self) -> None:
        self.cluster.machines = [ray_node(number, gpus=0.0) for number in range(1, 4)]

    def silence(self) -> None:
        self.cluster.is_silent = True

    def close(self) -> None:
        pass
