"""Computes a keeper's next orders from the states of engine and arbiter: a pure function, for randomized tests."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
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
class NodeCount:
    """The number of nodes to have.

    Attributes:
        nodes: number of nodes to have now.
        most: maximum number of nodes, which no request exceeds.
        group: number of nodes that the engine gives together; nodes are requested in multiples of it.
    """

    nodes: int
    most: int
    group: int = 1


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
        give_back: ids of the engine's nodes that are not needed and hold nothing; whole groups alone.
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
    wanted: NodeCount,
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
        wanted: the number of nodes to have, and how many come together.
        times: periods of the keeper.
        idle_since: Unix times in seconds since which the arbiter's nodes hold no slots, by name.
        released: ids of nodes that are being given back, which do not count any more.
    """
    latest = {life.name: life for life in lives if life.name}
    known = [life for life in lives if life.node is not None]
    standing = [life for life in known if life.id not in released and _stands(life.node, now, times)]
    groups = [group for group in _groups(known) if not any(_works(life, latest, members) for life in group)]
    present = [[life for life in group if life.id not in released and _is_active(life)] for group in groups]
    counted = {life.id for life in standing}
    surplus = _surplus(
        [group for group in present if group and all(life.id in counted for life in group)],
        len(standing) - wanted.nodes,
        members,
        lambda name: now - idle_since.get(name, now) >= times.idle,
    )
    done = [life for group in groups if _may_end(group, members, released) for life in group if _is_active(life)]
    return Plan(
        ask=_ask(wanted, len(standing)),
        drains=tuple(_drains(now, latest.values(), members, times)),
        leave=tuple(life.name for life in surplus if life.name in members and not members[life.name].leaves),
        gone=tuple(_gone(latest, members)),
        give_back=tuple(life.id for life in [*done, *(one for one in surplus if one.name not in members)]),
    )


def _ask(wanted: NodeCount, standing: int) -> int:
    """Return the number of nodes to request: whole groups, at least as many as are missing if the maximum allows it."""
    missing, room = math.ceil((wanted.nodes - standing) / wanted.group), (wanted.most - standing) // wanted.group
    return max(0, min(missing, room)) * wanted.group


def _stands(node: EngineNode | None, now: float, times: Times) -> bool:
    """Return whether a node is present or coming, and not so near its end that it must be replaced."""
    if node is None or node.state not in STANDING:
        return False
    return node.ends_at is None or node.state is NodeState.ASKED or node.ends_at - now > times.drain


def _is_active(life: Life) -> bool:
    """Return whether a node may still start or run, as the engine reports it."""
    return life.node is not None and life.node.state in STANDING


def _groups(known: Sequence[Life]) -> Sequence[Sequence[Life]]:
    """Return the listed nodes by what the engine gives as a whole: each group, and each node that stands alone."""
    found: dict[str, list[Life]] = {}
    for life in known:
        found.setdefault(life.id if life.node is None else life.node.unit, []).append(life)
    return list(found.values())


def _works(life: Life, latest: Mapping[str, Life], members: Mapping[str, Member]) -> bool:
    """Return whether jobs hold slots on a node that the engine reports as ended, so that its group must not end yet.

    The report may be wrong, and the end of the group would end its processes. On a node that is down, none is left
    that the arbiter's lease has not ended.
    """
    member = members.get(life.name) if latest.get(life.name) is life else None
    return not _is_active(life) and member is not None and member.state != "down" and member.held > 0


def _surplus(
    groups: Sequence[Sequence[Life]], count: int, members: Mapping[str, Member], is_long: Callable[[str], bool]
) -> Sequence[Life]:
    """Return at most ``count`` nodes to give back, in whole groups: queued ones, newest first, then idle ones.

    Args:
        groups: nodes that count, by what the engine gives as a whole.
        count: number of nodes above the wanted number.
        members: the arbiter's nodes by name.
        is_long: whether the node with a name has been idle for long enough.
    """

    def is_idle(life: Life) -> bool:
        member = members.get(life.name)
        return member is not None and member.state == "up" and member.held == 0 and is_long(life.name)

    queued = [
        group
        for group in groups
        if all(life.node is not None and life.node.state is NodeState.ASKED for life in group)
        and not any(life.name in members for life in group)
    ]
    idle = [group for group in groups if all(map(is_idle, group))]
    queued.sort(key=lambda group: (group[0].node.asked_at if group[0].node else None) or 0.0, reverse=True)
    idle.sort(key=lambda group: ((group[0].node.ends_at if group[0].node else None) or math.inf, group[0].id))
    found: list[Life] = []
    for group in [*queued, *idle]:
        if len(group) <= count - len(found):
            found += group
    return found


def _may_end(group: Sequence[Life], members: Mapping[str, Member], released: Collection[str]) -> bool:
    """Return whether a group that is being given back can end: its nodes have left the arbiter, or never joined it."""

    def is_done(life: Life) -> bool:
        member = members.get(life.name)
        return life.id in released and (member is None or (member.leaves and member.held == 0))

    return all(is_done(life) for life in group if _is_active(life))


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
            why = f"its time ends in {left:.0f} s{f', with all nodes of {node.group}' if node.group else ''}"
            found.append(Drain(name=life.name, within=within, why=why))
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
