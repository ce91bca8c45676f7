"""The interface of a Ray cluster for the engine: nodes, actors and a few calls; ``RayDriver`` implements it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict

LOOPBACK: Final = "127."


class RayNode(BaseModel):
    """A node of a Ray cluster, as its head lists it.

    Attributes:
        id: Ray's id of the node.
        host: the machine's name.
        address: IP address.
        alive: whether Ray lists the node as alive.
        drains: whether Ray starts nothing new on the node, since the node will end.
        ends_at: Unix time in seconds at which a draining node ends; None: no end is known.
        gpus: the node's number of GPUs as configured in Ray, whatever devices exist.
        free_gpus: number of GPUs that no actor or task of Ray has reserved.
        cpus: the node's number of CPUs.
        free_cpus: number of CPUs that no actor or task of Ray has reserved.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    host: str
    address: str
    alive: bool
    drains: bool = False
    ends_at: float | None = None
    gpus: float = 0.0
    free_gpus: float = 0.0
    cpus: float = 0.0
    free_cpus: float = 0.0

    @property
    def name(self) -> str:
        """The name of the arbiter's node there: the host's name; with the address's end if a host has several nodes."""
        return f"{self.host}.{self.address.rpartition('.')[2]}" if self.address.startswith(LOOPBACK) else self.host


class RayActor(BaseModel):
    """An actor, alive or dead, as Ray's head lists it.

    Attributes:
        id: Ray's id of the actor, in hexadecimal digits.
        name: the actor's name; empty: it has none.
        namespace: namespace in which the name is unique among live actors.
        class_name: name of the actor's class.
        state: Ray's state, such as ``ALIVE``.
        node: Ray's id of the node on which it runs or is to run; empty: none.
        why: Ray's message about the actor's death; empty: none.
        began_at: Unix time in seconds of its start; None: it has not started, or the time is unknown.
        gpus: number of GPUs that it holds.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    name: str = ""
    namespace: str = ""
    class_name: str = ""
    state: str
    node: str = ""
    why: str = ""
    began_at: float | None = None
    gpus: float = 0.0


class NewActor(BaseModel):
    """The actor of a node's launcher.

    Attributes:
        name: name of the actor.
        node: Ray's id of the node.
        arbiter_node: name of the arbiter's node.
        state: the arbiter's state folder.
        gpus: number of Ray's GPUs that the actor reserves.
        cpus: number of Ray's CPUs that the actor reserves.
        runtime_env: Ray's runtime environment.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    node: str
    arbiter_node: str
    state: str
    gpus: float
    cpus: float
    runtime_env: Mapping[str, Any] = {}


class RayCluster(Protocol):
    """A Ray cluster, in the namespace of one arbiter.

    Each call raises ``EngineSilentError`` if the cluster does not answer, and ``EngineRefusedError`` if the cluster
    cannot be used, for instance because its version of Ray differs.
    """

    def version(self) -> str:
        """Return the versions of Ray and Python, as text."""

    def address(self) -> str:
        """Return the address of the cluster's head."""

    def nodes(self) -> Sequence[RayNode]:
        """Return the nodes, including dead ones."""

    def actors(self) -> Sequence[RayActor]:
        """Return the actors of all namespaces, including dead ones."""

    def create(self, new: NewActor) -> str:
        """Create a detached actor pinned to a node; returns the actor's id; empty: the actor's name is taken."""

    def end(self, actor: str) -> None:
        """Order the actor of this name to end its launcher gracefully and then itself, without waiting for the end."""

    def kill(self, actor: str) -> None:
        """Kill the actor of this name, such as one that still waits; no effect if there is no such actor."""

    def want(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Request bundles of resources from the cluster's autoscaler, which replaces earlier requests."""
