"""What a keeper does next, from what engine and arbiter say; a pure function, so that random histories can test it."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from eunomia.model.shapes import value
from eunomia_engines.engine import EngineNode, NodeState

STANDING: Final = frozenset({NodeState.ASKED, NodeState.RUNS, NodeState.UNKNOWN})
"""States in which a node counts as one that is there or comes; one in an unknown state is not replaced either."""


@value
class Member:
    """A node as the arbiter knows it.

    Attributes:
        state: up, draining, drained or down.
        held: slots that leases hold.
        leaves: whether it is removed once it is empty.
        slots: that it has now.
    """

    state: str
    held: int = 0
    leaves: bool = False
    slots: int = 0


@value
class Life:
    """A node of the engine with the arbiter's node that it became.

    Attributes:
        node: by the engine's word; None: the engine does not list it any more.
        name: of the arbiter's node; empty: its launcher has not begun.
        is_clean: whether its launcher has ended everything that ran there, by its own word.
        has_failed: whether its launcher ended for good and not in order, by the word of what ran it.
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
        drain: before the known end of a node, from when it is drained and replaced.
        margin: between the last lease on a node and its end.
        idle: after which a node above the wanted number that holds nothing is given back.
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
    """Orders of one look.

    Attributes:
        ask: number of nodes to ask for.
        drains: nodes whose end is near.
        leave: nodes of the arbiter that are to be removed once they are empty, as they are not needed.
        gone: nodes of the arbiter that have ended everything by themselves, to be removed at once.
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
    """Return what to do now.

    Args:
        now: Unix time in seconds.
        lives: all nodes of the engine, and those that it does not list any more but whose pilots are on record; in
            the order of their begins, since a host may have several, one after another, under one name.
        members: the arbiter's nodes by name.
        wanted: number of nodes to have.
        times: periods.
        idle_since: Unix times since when the arbiter's nodes hold nothing, by name.
        released: ids of nodes that are being given back, so that they count no more.
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
    """Return whether a node is there, or comes, for longer than it takes to replace it."""
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
    """Return the nodes to give back, at most ``count``: first those in the queue, then idle ones that end first."""
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
    """Return whether a node that is given back can end: it has left the arbiter, or never was there."""
    active = life.node is not None and life.node.state in STANDING
    return active and (life.name not in members or (members[life.name].leaves and members[life.name].held == 0))


def _drains(now: float, latest: Collection[Life], members: Mapping[str, Member], times: Times) -> Sequence[Drain]:
    """Return the nodes whose known end is near, with the time that their leases have left."""
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
    """Return the arbiter's nodes whose last launcher has ended everything there, unless another begins on them."""
    return [
        name
        for name, life in latest.items()
        if name in members
        and members[name].state == "down"
        and life.is_clean
        and (life.node is None or life.node.state in (NodeState.ENDS, NodeState.ENDED))
    ]
