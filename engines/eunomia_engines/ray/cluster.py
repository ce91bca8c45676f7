"""A Ray cluster as the engine sees it: nodes, actors, and few calls; a real one answers through ``RayDriver``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict

LOOPBACK: Final = "127."


class RayNode(BaseModel):
    """A node of a Ray cluster, as its head lists it.

    Attributes:
        id: Ray's own.
        host: the machine's name.
        address: IP address.
        alive: by Ray's word.
        drains: whether Ray lets nothing new begin there, since the node is to end.
        ends_at: when a node that drains ends, as Unix time in seconds; None: no end is known.
        gpus: that the node has; the number given to Ray, which proves nothing about devices.
        free_gpus: that no actor or task of Ray has reserved.
        cpus: that the node has.
        free_cpus: that no actor or task of Ray has reserved.
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
        """The name of the arbiter's node there: the host's; of several nodes on one host, with the address's end."""
        return f"{self.host}.{self.address.rpartition('.')[2]}" if self.address.startswith(LOOPBACK) else self.host


class RayActor(BaseModel):
    """An actor, as Ray's head lists it, also a dead one.

    Attributes:
        id: Ray's own, in hexadecimal digits.
        name: empty: it has none.
        namespace: in which the name is unique among live actors.
        class_name: of its class.
        state: Ray's word, such as ``ALIVE``.
        node: Ray's id of the node on which it runs or is to run; empty: none.
        why: Ray's words for its death; empty: none.
        began_at: Unix time in seconds; None: it has not begun, or Ray does not say when.
        gpus: that it holds.
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
        name: of the actor.
        node: Ray's id of the node.
        arbiter_node: name of the arbiter's node.
        state: the arbiter's state folder.
        gpus: of Ray that it holds.
        cpus: of Ray that it holds.
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

    Each call raises ``EngineSilentError`` if the cluster does not answer, and ``EngineRefusedError`` if it cannot be
    used, such as one of another version of Ray.
    """

    def version(self) -> str:
        """Return the versions of Ray and Python, as text."""

    def address(self) -> str:
        """Return the address of the cluster's head."""

    def nodes(self) -> Sequence[RayNode]:
        """Return the nodes, also dead ones."""

    def actors(self) -> Sequence[RayActor]:
        """Return the actors of all namespaces, also dead ones."""

    def create(self, new: NewActor) -> str:
        """Create a detached actor pinned to a node, and return its id; empty: its name is taken."""

    def end(self, actor: str) -> None:
        """Order the actor of this name to end its launcher in order and then itself, without waiting for it."""

    def kill(self, actor: str) -> None:
        """Withdraw the actor of this name, such as one that waits; no actor of the name changes nothing."""

    def want(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Ask the cluster's autoscaler for room for bundles of resources, which replaces what was asked for before."""
