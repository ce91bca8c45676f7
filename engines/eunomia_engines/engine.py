"""The interface of engines: an engine provides nodes, keeps launchers alive on them, and reports when a node will end.

An engine (Slurm, Ray, a cloud) decides nothing about GPUs: only the arbiter assigns GPUs to jobs. An engine's report
that a node has ended is a hint, never a proof: if Slurm's daemon is killed, Slurm reports the node as lost while all
processes on it still run. Only the fence of a launcher frees slots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Protocol

from eunomia.errors import EunomiaError, InputError
from eunomia.model.shapes import value
from eunomia_appmaster.commands.serve_flags import ServeFlags


class NodeState(Enum):
    """The state of a node as the engine reports it."""

    ASKED = "asked"
    """Waits in the engine's queue."""
    RUNS = "runs"
    ENDS = "ends"
    """Ordered to end; processes may still run."""
    ENDED = "ended"
    """Reported as ended by the engine, which does not prove that its processes have ended."""
    UNKNOWN = "unknown"
    """A state that this version does not know; it counts neither as ended nor as free."""


@value
class EngineNode:
    """A requested node, as the engine reports it."""

    id: str
    """The engine's id of the node, such as the id of a Slurm job."""
    state: NodeState
    why: str = ""
    """The engine's reason for the state, such as ``Priority``; empty: none is reported."""
    host: str = ""
    """Host name of the node's machine; empty: none is assigned yet."""
    asked_at: float | None = None
    """Unix time in seconds of the request; None: unknown."""
    began_at: float | None = None
    """Unix time in seconds of the start; None: the node has not started, or the time is unknown."""
    ends_at: float | None = None
    """Unix time in seconds at which the engine ends the node; None: unknown, or without an end."""
    group: str = ""
    """The engine's id of what holds this node and others, such as a batch job of several nodes: they wait, start and
    end together, and each is listed as long as the group is. Empty: the node stands alone."""

    @property
    def unit(self) -> str:
        """The engine's id of what is requested and given back as a whole: the node's group, else the node itself."""
        return self.group or self.id


@value
class EngineFinding:
    """One line of ``eunomia engine check``: a prerequisite of the engine, found or missing."""

    is_good: bool
    text: str


class Engine(Protocol):
    """The nodes of one arbiter at an engine; each call may take seconds, and may fail with ``EngineSilentError``.

    One thread makes all calls, about every 30 s, and again after a failure. Requested nodes belong to a state folder,
    so that a later process with the same folder finds them.
    """

    def nodes(self) -> Sequence[EngineNode]:
        """Return all nodes that were requested for this arbiter, including ended ones that the engine still lists.

        Each id occurs once; ``each_once`` merges nodes that an engine lists twice.

        Raises:
            EngineSilentError: the engine does not answer, so the state of the nodes is unknown.
        """

    def ask(self, count: int) -> Sequence[str]:
        """Request nodes, and return their ids: ``count`` of them, or fewer if the engine's limits allow no more.

        An engine whose nodes come in groups requests as many whole groups as ``count`` has.

        Raises:
            EngineRefusedError: the engine refuses; the error contains its message.
            EngineSilentError: the engine does not answer, so it is unknown whether the nodes were requested.
        """

    def give_back(self, node: str) -> None:
        """End a node, or withdraw it from the queue; no effect on a node that has already ended.

        With the node, all nodes of its group end.

        Raises:
            EngineSilentError: the engine does not answer.
        """


class EngineKind(Protocol):
    """An engine's entry class, which the hook ``eunomia_engine`` names as ``module:class``; it takes no arguments."""

    def check(self) -> Sequence[EngineFinding]:
        """Return which prerequisites of the engine are found and which are missing; changes and raises nothing."""

    def engine(self, state: Path) -> Engine:
        """Return the engine of an arbiter's state folder, without calling the engine's programs.

        Raises:
            InputError: the state folder holds no request for nodes of this engine.
        """


class AllocationKind(Protocol):
    """An engine that can serve on machines already allocated to the user's shell: ``eunomia serve --on NAME``."""

    def serve_allocation(self, flags: ServeFlags) -> int:
        """Serve on the machines allocated to this shell until stopped or the allocation ends; returns the exit code.

        Raises:
            InputError: this shell has no allocation, or a flag has no meaning in one.
        """


class EngineRefusedError(InputError):
    """The engine refuses a request; the error's value is the engine's own message."""


class EngineSilentError(EunomiaError):
    """The engine does not answer."""


def one_of_each(nodes: Iterable[EngineNode]) -> Sequence[EngineNode]:
    """Return the first node of each group, and all nodes that stand alone."""
    found: dict[str, EngineNode] = {}
    for node in nodes:
        found.setdefault(node.unit, node)
    return list(found.values())


def each_once(nodes: Iterable[EngineNode]) -> Sequence[EngineNode]:
    """Return nodes with each id once; a node that is listed twice with different contents is ``UNKNOWN``."""
    found: dict[str, EngineNode] = {}
    for node in nodes:
        before = found.get(node.id)
        if before is not None and before != node:
            node = replace(
                before, state=NodeState.UNKNOWN, why=f"listed as {before.state.value} and as {node.state.value}"
            )
        found[node.id] = node
    return list(found.values())
