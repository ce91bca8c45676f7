"""What an engine is: it provides machines, keeps launchers alive on them, and says when a machine's time ends.

An engine (Slurm, Ray, a cloud) decides nothing about GPUs: the arbiter alone says which job uses which GPU. What an
engine says about the end of a node is a hint, never a proof: with Slurm's daemon killed, Slurm calls the node lost
while all processes on it still live. Slots become free by the fence of a launcher alone.
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
    """The state of a node by the engine's own words."""

    ASKED = "asked"
    """Waits in the engine's queue."""
    RUNS = "runs"
    ENDS = "ends"
    """Ordered to end; processes may still run."""
    ENDED = "ended"
    """Over by the engine's word, which proves nothing about processes."""
    UNKNOWN = "unknown"
    """A state that this version does not know; it counts neither as ended nor as free."""


@value
class EngineNode:
    """A node that was asked for, as the engine describes it."""

    id: str
    """The engine's own, such as the id of a Slurm job."""
    state: NodeState
    why: str = ""
    """The engine's own word for it, such as ``Priority``."""
    host: str = ""
    """Empty: no machine has been given yet."""
    asked_at: float | None = None
    """Unix time in seconds; None: not known."""
    began_at: float | None = None
    """Unix time in seconds; None: it has not begun, or the time is not known."""
    ends_at: float | None = None
    """Unix time in seconds at which the engine ends it; None: no end is known."""


@value
class EngineFinding:
    """One line of ``eunomia engine check``: what is there, or what is missing."""

    is_good: bool
    text: str


class Engine(Protocol):
    """The nodes of one arbiter at an engine; each call may take seconds, and may fail with ``EngineSilentError``.

    Calls come from one thread, about every 30 s, and again after a failure. What was asked for belongs to a state
    folder, so that a later process with that folder finds it.
    """

    def nodes(self) -> Sequence[EngineNode]:
        """Return all nodes that were asked for in this arbiter's name, also ended ones that the engine still lists.

        Each once: ``each_once`` merges what an engine says twice.

        Raises:
            EngineSilentError: the engine does not answer, so that nothing is known.
        """

    def ask(self, count: int) -> Sequence[str]:
        """Ask for nodes, and return their ids, at most ``count``, fewer where the engine's limits allow no more.

        Raises:
            EngineRefusedError: the engine refuses, in its own words.
            EngineSilentError: the engine does not answer; whether the nodes were asked for is not known.
        """

    def give_back(self, node: str) -> None:
        """End a node, or withdraw it from the queue; one that has ended already changes nothing.

        Raises:
            EngineSilentError: the engine does not answer.
        """


class EngineKind(Protocol):
    """What the hook ``eunomia_engine`` names, as ``module:class``; the class is made without arguments."""

    def check(self) -> Sequence[EngineFinding]:
        """Return what of the engine is there and what is missing; changes nothing and raises nothing."""

    def engine(self, state: Path) -> Engine:
        """Return the engine of an arbiter's state folder, without a call of the engine's programs.

        Raises:
            InputError: the state folder holds no request for nodes of this engine.
        """


class AllocationKind(Protocol):
    """An engine whose machines a user may have already, as in a shell of an allocation: ``eunomia serve --on NAME``."""

    def serve_allocation(self, flags: ServeFlags) -> int:
        """Serve on the machines of this shell until it is stopped or they end; returns the exit code.

        Raises:
            InputError: this shell has no machines, or a flag is of no use there.
        """


class EngineRefusedError(InputError):
    """The engine refuses a request; the value holds the engine's own words."""


class EngineSilentError(EunomiaError):
    """The engine does not answer."""


def each_once(nodes: Iterable[EngineNode]) -> Sequence[EngineNode]:
    """Return nodes with each id once; the state of a node of which two things are said is unknown."""
    found: dict[str, EngineNode] = {}
    for node in nodes:
        before = found.get(node.id)
        if before is not None and before != node:
            node = replace(
                before, state=NodeState.UNKNOWN, why=f"listed as {before.state.value} and as {node.state.value}"
            )
        found[node.id] = node
    return list(found.values())
