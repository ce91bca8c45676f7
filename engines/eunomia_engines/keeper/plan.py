"""Computes a keeper's next orders from the states of engine and arbiter: a pure function, for randomized tests."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from eunomia.model.shapes import value
from eunomia_engines.engine import EngineNode, NodeState

STANDING: Final = frozenset({NodeState.ASKED, NodeState.RUNS, NodeState.UNKNOWN})
"""States in which a node counts as present or coming; a node in an unknown state is not replaced either."""


@value
class Member:
    """A node in the arbiter's view.

    Attributes:
        state: up, draining, drained or down.
        held: number of slots that leases hold.
        leaves: whether the node is to be removed once it is empty.
        slots: number of slots that the node has now.
    """

    state: str
    held: int = 0
    leaves: bool = False
    slots: int = 0


@value
class Life:
    """A node of the engine together with the arbiter's node that it became.

    Attributes:
        node: the node as the engine lists it; None: the engine does not list it any more.
        name: name of the arbiter's node; empty: its launcher has not started.
        is_clean: whether its launcher exited with code 0, after it had ended everything that ran on the node.
        has_failed: whether its launcher exited with another code, as its pilot recorded.
    """

    id: str
    node: EngineNode | None
    name: str = ""
    is_clean: bool = False
    has_failed: bool = False


@value
class Times:
    """Periods in seconds.

    Attributes:
        drain: time before the known end of a node at which the node is drained and replaced.
        margin: time between the end of the last lease on a node and the node's own end.
        idle: time without leases after which a node above the wanted number is given back.
    """

    drain: float
    margin: float
    idle: float


@value
class Drain:
    """A node to drain, and the seconds within which its leases must end."""

    name: str
    within: float
    why: str


@value
class Plan:
    """The orders of one look.

    Attributes:
        ask: number of nodes to request.
        drains: nodes whose end is near.
        leave: names of the arbiter's nodes that are not needed, to be removed once they are empty.
        gone: names of the arbiter's nodes whose launchers have ended everything, to be removed at once.
        give_back: ids of the engine's nodes that are not needed and hold nothing.
    """

    ask: int = 0
    drains: tuple[Drain, ...] = ()
    leave: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    give_back: tuple[str, ...] = ()


def plan(
    now: float,
    lives: Sequence[Life],
    members: Mapping[str, Member],
    wanted: int,
    times: Times,
    *,
    idle_since: Mapping[str, float],
    released: Collection[str] = (),
) -> Plan:
    """Return the orders for this look.

    Args:
        now: Unix time in seconds.
        lives: all nodes of the engine, including unlisted ones whose pilots have records; in the order of their
            starts, since a host may have several nodes, one after another, under one name.
        members: the arbiter's nodes by name.
        wanted: number of nodes to have.
        times: periods of the keeper.
        idle_since: Unix times in seconds since which the arbiter's nodes hold no slots, by name.
        released: ids of nodes that are being given back, which do not count any more.
    """
    latest = {life.name: life for life in lives if life.name}
    known = [life for life in lives if life.node is not None]
    standing = [life for life in known if life.id not in released and _stands(life.node, now, times)]
    surplus = _surplus(now, standing, members, len(standing) - wanted, times, idle_since)
    leave = [life.name for life in surplus if life.name in members and not members[life.name].leaves]
    done = [life for life in known if life.id in released and _may_end(life, members)]
    return Plan(
        ask=max(0, wanted - len(standing)),
        drains=tuple(_drains(now, latest.values(), members, times)),
        leave=tuple(leave),
        gone=tuple(_gone(latest, members)),
        give_back=tuple(life.id for life in [*done, *(one for one in surplus if one.name not in members)]),
    )


def _stands(node: EngineNode | None, now: float, times: Times) -> bool:
    """Return whether a node is present or coming, and not so near its end that it must be replaced."""
    if node is None or node.state not in STANDING:
        return False
    return node.ends_at is None or node.state is NodeState.ASKED or node.ends_at - now > times.drain


def _surplus(
    now: float,
    standing: Sequence[Life],
    members: Mapping[str, Member],
    count: int,
    times: Times,
    idle_since: Mapping[str, float],
) -> Sequence[Life]:
    """Return at most ``count`` nodes to give back: queued ones, newest first, then idle ones, earliest end first."""
    if count <= 0:
        return ()
    queued = [life for life in standing if life.node is not None and life.node.state is NodeState.ASKED]
    idle = [
        life
        for life in standing
        if life.name in members
        and members[life.name].state == "up"
        and members[life.name].held == 0
        and now - idle_since.get(life.name, now) >= times.idle
    ]
    queued.sort(key=lambda life: (life.node.asked_at if life.node else None) or 0.0, reverse=True)
    idle.sort(key=lambda life: ((life.node.ends_at if life.node else None) or math.inf, life.id))
    return [*queued, *idle][:count]


def _may_end(life: Life, members: Mapping[str, Member]) -> bool:
    """Return whether a node that is being given back can end: it has left the arbiter, or never joined it."""
    active = life.node is not None and life.node.state in STANDING
    return active and (life.name not in members or (members[life.name].leaves and members[life.name].held == 0))


def _drains(now: float, latest: Collection[Life], members: Mapping[str, Member], times: Times) -> Sequence[Drain]:
    """Return the nodes whose known end is near, with the seconds that their leases have left."""
    found = []
    for life in latest:
        member, node = members.get(life.name), life.node
        if member is None or member.state != "up" or node is None or node.ends_at is None:
            continue
        left = node.ends_at - now
        if node.state is NodeState.RUNS and left <= times.drain:
            within = max(1.0, left - times.margin)
            found.append(Drain(name=life.name, within=within, why=f"its time ends in {left:.0f} s"))
    return found


def _gone(latest: Mapping[str, Life], members: Mapping[str, Member]) -> Sequence[str]:
    """Return the arbiter's nodes whose last launcher has ended everything there, unless another one starts there."""
    return [
        name
        for name, life in latest.items()
        if name in members
        and members[name].state == "down"
        and life.is_clean
        and (life.node is None or life.node.state in (NodeState.ENDS, NodeState.ENDED))
    ]
