"""The engine of Ray: a detached actor on each node of a running cluster, which holds the node's GPUs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from eunomia.errors import EunomiaError
from eunomia.extras import is_installed, remedy
from eunomia_engines.engine import EngineFinding, EngineNode, EngineRefusedError, NodeState, each_once
from eunomia_engines.pilots.records import PILOTS
from eunomia_engines.ray.cluster import NewActor, RayActor, RayCluster, RayNode
from eunomia_engines.ray.driver import RayDriver
from eunomia_engines.ray.request import FOLDER, RayRequest, namespace_of

PREFIX: Final = "eunomia-launcher-"
LOGS: Final = "logs"
STATES: Final = {
    "DEPENDENCIES_UNREADY": NodeState.ASKED,
    "PENDING_CREATION": NodeState.ASKED,
    "ALIVE": NodeState.RUNS,
    "DEAD": NodeState.ENDED,
}
"""Ray's states of an actor as node states; RESTARTING is unknown, since the actor's launcher may still run."""
WAITS: Final = frozenset({"DEPENDENCIES_UNREADY", "PENDING_CREATION"})
DEAD: Final = "DEAD"
LOCAL: Final = "auto"


class RayEngine:
    """Requests nodes from Ray by creating one actor for each.

    Args:
        request: the request of ``eunomia ray up``.
        state: the arbiter's state folder.
        cluster: calls Ray, in the state folder's namespace; None: the request's cluster.
    """

    def __init__(self, request: RayRequest, state: Path, cluster: RayCluster | None = None) -> None:
        self._request, self._state = request, state
        self.cluster: RayCluster = cluster or RayDriver(
            request.address, namespace_of(state), state / FOLDER / "bridge.log"
        )
        """The Ray cluster."""

    def nodes(self) -> Sequence[EngineNode]:
        """Return the actors of this state folder, including dead ones, which Ray lists while its head runs."""
        nodes = {node.id: node for node in self.cluster.nodes()}
        return each_once(node_of(actor, nodes.get(actor.node)) for actor in self._actors())

    def ask(self, count: int) -> Sequence[str]:
        """Create at most ``count`` actors, on nodes without one whose needed resources are free; returns their ids."""
        nodes, actors = self.cluster.nodes(), self._actors()
        able = [node for node in nodes if is_able(node, self._request)]
        if not able:
            rule = f"a Ray cluster must have nodes with {wanted_words(self._request)}"
            raise EngineRefusedError(rule, value=f'"{nodes_words(nodes)}"')
        used = {actor.node for actor in actors if actor.state != DEAD}
        names = {actor.name for actor in actors if actor.state != DEAD}
        made: list[str] = []
        for node in able if count > 0 else ():
            if (
                len(made) == count
                or node.id in used
                or f"{PREFIX}{node.name}" in names
                or why_not_free(node, self._request)
            ):
                continue
            names.add(f"{PREFIX}{node.name}")
            made += filter(None, [self.cluster.create(self._new(node))])
        if self._request.autoscale and len(made) < count:
            self.cluster.want([resources_of(able[0], self._request)] * (len(used) + count))
        return made

    def give_back(self, node: str) -> None:
        """Order the actor with this id to end its launcher gracefully and then itself; kill an actor that waits."""
        for actor in self._actors():
            if actor.id == node and actor.state in WAITS:
                self.cluster.kill(actor.name)
            elif actor.id == node and actor.state != DEAD:
                self.cluster.end(actor.name)

    def room(self) -> Sequence[tuple[RayNode, str]]:
        """Return the suitable nodes without an actor of this arbiter, each with the reason; an empty reason: usable."""
        actors = self.cluster.actors()
        used = {actor.node for actor in self._own(actors) if actor.state != DEAD}
        able = [node for node in self.cluster.nodes() if is_able(node, self._request) and node.id not in used]
        return [(node, why_not_free(node, self._request, actors)) for node in able]

    def close(self) -> None:
        """End the bridge process, if there is one."""
        if isinstance(self.cluster, RayDriver):
            self.cluster.close()

    def _actors(self) -> Sequence[RayActor]:
        return self._own(self.cluster.actors())

    def _own(self, actors: Sequence[RayActor]) -> Sequence[RayActor]:
        own = namespace_of(self._state)
        return [actor for actor in actors if actor.namespace == own and actor.name.startswith(PREFIX)]

    def _new(self, node: RayNode) -> NewActor:
        for name in (LOGS, PILOTS):
            (self._state / FOLDER / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        given = resources_of(node, self._request)
        return NewActor(
            name=f"{PREFIX}{node.name}",
            node=node.id,
            arbiter_node=node.name,
            state=str(self._state),
            gpus=given.get("GPU", 0.0),
            cpus=given.get("CPU", 0.0),
            runtime_env=self._request.runtime_env,
        )


class RayKind:
    """Ray, as ``eunomia engine check ray`` finds it.

    Args:
        cluster: calls Ray; None: the cluster of which this machine is a node.
    """

    def __init__(self, cluster: RayCluster | None = None) -> None:
        self._cluster = cluster

    def check(self) -> Sequence[EngineFinding]:
        """Return which prerequisites of Ray are found and which are missing; changes nothing and raises nothing."""
        if self._cluster is not None:
            return findings(self._cluster)
        if not is_installed("ray"):
            return [EngineFinding(is_good=False, text=f"Ray must be installed: {remedy('ray')}")]
        driver = RayDriver(LOCAL, "eunomia-check", None)
        try:
            return findings(driver)
        finally:
            driver.close()

    def engine(self, state: Path) -> RayEngine:
        """Return the engine of a state folder of ``eunomia ray up``.

        Raises:
            InputError: there is no request in the state folder.
        """
        return RayEngine(RayRequest.load(state), state, self._cluster)


def node_of(actor: RayActor, node: RayNode | None) -> EngineNode:
    """Convert an actor to a node of the engine; a state that is not in ``STATES`` is ``UNKNOWN``."""
    state = STATES.get(actor.state, NodeState.UNKNOWN)
    runs = state is not NodeState.ASKED
    return EngineNode(
        id=actor.id,
        state=state,
        why="" if state is NodeState.RUNS else actor.why or actor.state,
        host="" if node is None else node.host,
        began_at=actor.began_at if runs else None,
        ends_at=node.ends_at if node is not None and runs else None,
    )


def is_able(node: RayNode, request: RayRequest) -> bool:
    """Return whether a node is alive, does not drain, and has the requested GPUs or CPUs."""
    return (
        node.alive
        and not node.drains
        and (node.gpus >= 1 if request.cpu_slots is None else node.cpus >= request.cpu_slots)
    )


def resources_of(node: RayNode, request: RayRequest) -> Mapping[str, float]:
    """Return Ray's resources that a node's actor reserves: all GPUs of the node, and the requested CPU slots."""
    held = {"GPU": node.gpus, "CPU": float(request.cpu_slots or 0)}
    return {name: amount for name, amount in held.items() if amount}


def why_not_free(node: RayNode, request: RayRequest, actors: Sequence[RayActor] = ()) -> str:
    """Return a message about needed GPUs or CPUs of a node that others hold; empty: all are free."""
    users = sorted(
        {one.name or one.class_name for one in actors if one.node == node.id and one.gpus and one.state != DEAD}
    )
    by = f"others ({', '.join(users)})" if users else "others"
    if node.free_gpus < node.gpus:
        return f"{node.gpus - node.free_gpus:g} of {node.gpus:g} GPUs used by {by}: taken once all are free"
    if request.cpu_slots is not None and node.free_cpus < request.cpu_slots:
        return f"{node.free_cpus:g} of {node.cpus:g} CPUs free: taken once {request.cpu_slots} are"
    return ""


def wanted_words(request: RayRequest) -> str:
    """Return text on the resources that a node must have."""
    return "GPUs (--cpu-slots N: CPU slots)" if request.cpu_slots is None else f"at least {request.cpu_slots} CPUs"


def nodes_words(nodes: Sequence[RayNode]) -> str:
    """Return text on the GPUs and CPUs of the live nodes."""
    alive = [f"{node.name}: {node.gpus:g} GPUs, {node.cpus:g} CPUs" for node in nodes if node.alive]
    return "; ".join(alive) or "no nodes"


def findings(cluster: RayCluster) -> Sequence[EngineFinding]:
    """Return which prerequisites a Ray cluster has and which are missing, as lines of text."""
    try:
        found = [EngineFinding(is_good=True, text=f"{cluster.version()}, cluster at {cluster.address()}")]
        nodes, actors = [node for node in cluster.nodes() if node.alive], cluster.actors()
    except EunomiaError as error:
        return [EngineFinding(is_good=False, text=" ".join(str(error).split()))]
    request = RayRequest(address=LOCAL)
    for node in nodes:
        text = f"node {node.name} ({node.address}): {node.gpus:g} GPUs, {node.cpus:g} CPUs"
        why = why_not_free(node, request, actors)
        found.append(EngineFinding(is_good=True, text=f"{text}; {why}" if why else text))
    if not any(node.gpus >= 1 for node in nodes):
        found.append(EngineFinding(is_good=False, text="no node has GPUs; --cpu-slots N makes CPU slots, for a try"))
    return found
