"""All runs of a gang under bursts of orders and a death: the machine of ``training.changes`` with a store and a master.

Not a test. ``explore`` visits every state that three workers can get into and checks each; ``Rules`` can be replaced by
rules with a mistake. A world holds small numbers only, so that millions of worlds fit in memory: a worker is the number
of its view in ``VIEWS``, and a set of workers is a bit mask.
"""

import functools
import itertools
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.appmaster.repairing import repaired

from eunomia_appmaster.training.changes import NO_STATE, Act, Decided, Member, Membership, MemberStage

NAMES = ("a", "b", "c")
ON = (MemberStage.STEPPING, MemberStage.ENTERING)
OUTCOMES = tuple(Decided)
OPEN, FORMED, ABANDONED = range(3)
STALE, MADE = 0, 1
ABSENT, DEAD = -1, -2
VIEWS: list[Member] = []
_NUMBER: dict[Member, int] = {}


def number_of(member: Member) -> int:
    if member not in _NUMBER:
        _NUMBER[member] = len(VIEWS)
        VIEWS.append(member)
    return _NUMBER[member]


def mask(names: tuple[str, ...]) -> int:
    return sum(1 << NAMES.index(name) for name in names)


@functools.cache
def names(members: int) -> tuple[str, ...]:
    return tuple(name for at, name in enumerate(NAMES) if members >> at & 1)


class World(NamedTuple):
    """Everything at one moment.

    ``orders`` and ``present`` are masks by generation; ``stepped`` is the newest generation that has made a step. Steps
    are counted from the last one that all members of a generation have made: that is ``MADE``, one in flight is one
    more, older ones are ``STALE``.
    """

    workers: tuple[int, ...]
    orders: tuple[int, ...]
    outcomes: tuple[int, ...]
    present: tuple[int, ...]
    holders: int
    burst: int
    deaths: int
    stepped: int
    restarts: bool = False
    sent: int = 0
    """Mask of the generations that were ordered, and not only planned, where the app master's own function decides."""
    master: int = 0
    """Number of what the app master knows then."""

    def having(self, at: int, view: int) -> "World":
        return self._replace(workers=(*self.workers[:at], view, *self.workers[at + 1 :]))

    def __str__(self) -> str:
        views = [VIEWS[each] if each >= 0 else each for each in self.workers]
        return f"{views} orders {[names(each) for each in self.orders]} outcomes {self.outcomes}"


@dataclass(frozen=True, eq=False)
class Rules:
    """The machine's functions that a world calls, each once per event; tests plant mistakes here."""

    agreed: Callable[[list[int]], int] = min
    next_act: Callable[[Member, Decided, tuple[str, ...]], tuple[Act, int]] = Member.next_act
    hears: Callable[[Member, Membership], Member] = Member.hears
    learns: Callable[[Member, int, Decided], Member] = Member.learns
    loses: Callable[[Member], Member] = Member.loses_a_peer
    source: Callable[[list[int]], int] = max


@dataclass
class Explored:
    """What an exploration has found."""

    states: int = 0
    transitions: int = 0
    faults: list[str] = field(default_factory=list)


def start(members: tuple[str, ...], *, burst: int, deaths: int = 1) -> World:
    first = Membership(0, members)
    views = tuple(number_of(Member.member_of(name, first, MADE)) if name in members else ABSENT for name in NAMES)
    everyone = mask(members)
    return World(views, (everyone,), (FORMED,), (everyone,), everyone, burst, deaths, stepped=0)


def explore(first: World, rules: Rules | None = None, kind: "type[Machine] | None" = None) -> Explored:
    """Visit all states; a fault is a state that breaks a rule, or from which nothing leads to a good end."""
    found, machine = Explored(), (kind or Machine)(rules or Rules())
    number = {first: 0}
    queue, origins, targets, good = [first], array("l"), array("l"), []
    for index, world in enumerate(queue):
        if machine.is_good(world):
            good.append(index)
        for after, fault in machine.following(world):
            if fault:
                found.faults.append(f"{fault}: {world}")
                return found
            after = known(after)
            if after not in number:
                number[after] = len(queue)
                queue.append(after)
            origins.append(index)
            targets.append(number[after])
    found.states, found.transitions = len(queue), len(origins)
    stuck = _without_a_way(len(queue), origins, targets, good)
    found.faults += [f"no way on: {queue[stuck[0]]}"] if stuck else []
    return found


def _without_a_way(states: int, origins: array, targets: array, good: list[int]) -> list[int]:
    before: list[list[int]] = [[] for _ in range(states)]
    for origin, target in zip(origins, targets, strict=True):
        before[target].append(origin)
    reached = bytearray(states)
    for index in good:
        reached[index] = 1
    while good:
        for index in before[good.pop()]:
            if not reached[index]:
                reached[index] = 1
                good.append(index)
    return [index for index in range(states) if not reached[index]]


class Machine:
    """The events of a world under some rules; what the machine answers is remembered by numbers."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.hears = functools.cache(lambda view, number, members: number_of(self._hears(view, number, members)))
        self.agrees = functools.cache(lambda view, number: number_of(VIEWS[view].agrees(number)))
        self.loses = functools.cache(lambda view: number_of(rules.loses(VIEWS[view])))
        self.learns = functools.cache(lambda view, number, to: number_of(rules.learns(VIEWS[view], number, to)))
        self.becomes = functools.cache(_with_step)
        self.enters = functools.cache(lambda view, step: number_of(VIEWS[view].enters(step)))
        self.act = functools.cache(lambda view, to, here: rules.next_act(VIEWS[view], OUTCOMES[to], names(here)))

    def _hears(self, view: int, number: int, members: int) -> Member:
        return self.rules.hears(VIEWS[view], Membership(number, names(members)))

    def is_good(self, world: World) -> bool:
        """Whether all that live make steps in the newest order's generation, or nobody is left, so the job restarts."""
        if world.restarts:
            return True
        newest = len(world.orders) - 1
        here = sum(
            1 << at for at, view in enumerate(world.workers) if view >= 0 and VIEWS[view].stage is not MemberStage.LEFT
        )
        return here == world.orders[newest] and self.can_step(world, newest)

    def can_step(self, world: World, generation: int) -> bool:
        return all(
            view >= 0 and VIEWS[view].stage is MemberStage.STEPPING and _in(view, generation)
            for at, view in enumerate(world.workers)
            if world.orders[generation] >> at & 1
        )

    def following(self, world: World) -> Iterator[tuple[World, str]]:
        """Yield every world that one event leads to, each with the rule that it breaks, or nothing."""
        if world.restarts:
            return
        for generation in range(len(world.orders)):
            if world.orders[generation] and self.can_step(world, generation):
                yield from self.group_events(world, generation)
        for at, view in enumerate(world.workers):
            if view < 0 or VIEWS[view].stage is MemberStage.LEFT:
                continue
            yield from self.worker_events(world, at, view)
        yield from self.master(world)

    def hearable(self, world: World, number: int) -> bool:
        """Return whether workers can hear of a generation."""
        return world.orders[number] > 0

    def worker_events(self, world: World, at: int, view: int) -> Iterator[tuple[World, str]]:
        member = VIEWS[view]
        for number in range(member.newest.generation + 1, len(world.orders)):
            if self.hearable(world, number):
                yield world.having(at, self.hears(view, number, world.orders[number])), ""
        if member.stage is MemberStage.FORMING:
            yield from self.forms(world, at, view)
        if member.stage is MemberStage.ENTERING:
            yield from self.joins(world, at, view)
        if member.stage in ON and _lost(world, view):
            yield world.having(at, self.loses(view)), ""
        if world.deaths:
            yield from self.dies(world, at, view)

    def group_events(self, world: World, generation: int) -> Iterator[tuple[World, str]]:
        members = [at for at in range(len(NAMES)) if world.orders[generation] >> at & 1]
        if world.stepped > generation:
            yield world, "two groups make steps"
        views = tuple(
            view if view < 0 else self.becomes(view, MADE if at in members else VIEWS[view].step - 1)
            for at, view in enumerate(world.workers)
        )
        yield world._replace(stepped=generation, holders=world.holders | world.orders[generation], workers=views), ""
        agreed = self.rules.agreed([VIEWS[world.workers[at]].newest.generation for at in members])
        after = world
        for at in members:
            after = after.having(at, self.agrees(world.workers[at], agreed))
        if after != world:
            yield after, ""

    def forms(self, world: World, at: int, view: int) -> Iterator[tuple[World, str]]:
        target = VIEWS[view].target
        aim = 0 if target is None else target.generation
        act, number = self.act(view, world.outcomes[aim], world.present[aim])
        if act is Act.APPEAR:
            present = list(world.present)
            present[number] |= 1 << at
            after = world._replace(present=tuple(present))
            yield after.having(at, number_of(VIEWS[view].appears())), ""
            return
        outcomes = list(world.outcomes)
        if outcomes[number] == OPEN and act in (Act.FORM, Act.ABANDON):
            outcomes[number] = FORMED if act is Act.FORM else ABANDONED
        learned = self.learns(view, number, OUTCOMES[outcomes[number]])
        after = world._replace(outcomes=tuple(outcomes)).having(at, learned)
        if after != world:
            yield after, ""

    def joins(self, world: World, at: int, view: int) -> Iterator[tuple[World, str]]:
        current = VIEWS[view].current
        generation = 0 if current is None else current.generation
        peers = [each for other, each in enumerate(world.workers) if world.orders[generation] >> other & 1]
        if all(each >= 0 and VIEWS[each].stage in ON and _in(each, generation) for each in peers):
            step = self.rules.source([VIEWS[each].step for each in peers])
            fault = "steps are lost" if step < MADE and any(VIEWS[each].step != NO_STATE for each in peers) else ""
            yield world.having(at, self.enters(view, step)), fault

    def dies(self, world: World, at: int, view: int) -> Iterator[tuple[World, str]]:
        """Yield the worlds without the worker; of its group, any part may have applied the step in flight."""
        gone = world.having(at, DEAD)._replace(deaths=world.deaths - 1)
        yield gone, ""
        current = VIEWS[view].current
        if current is None or not self.can_step(world, current.generation):
            return
        peers = [other for other, each in enumerate(gone.workers) if each >= 0 and _in(each, current.generation)]
        for count in range(1, len(peers) + 1):
            for ahead in itertools.combinations(peers, count):
                after = gone
                for other in ahead:
                    after = after.having(other, self.becomes(gone.workers[other], MADE + 1))
                yield after, ""

    def master(self, world: World) -> Iterator[tuple[World, str]]:
        """Yield what the app master orders: what it likes, while the burst lasts, and what repairs its newest order."""
        newest, living, broken = len(world.orders) - 1, 0, False
        for at, view in enumerate(world.workers):
            if view >= 0 and VIEWS[view].stage is not MemberStage.LEFT:
                living |= 1 << at
                broken |= VIEWS[view].stage is MemberStage.HOLDING and VIEWS[view].newest.generation == newest
        if world.burst:
            for members in range(1, 1 << len(NAMES)):
                never = any(members >> at & 1 and view == DEAD for at, view in enumerate(world.workers))
                if members != world.orders[newest] and members & world.holders and not never:
                    yield _ordered(world, members)._replace(burst=world.burst - 1), ""
        repair = _repaired(newest, world.orders[newest], living, world.holders, broken)
        if repair:
            yield _ordered(world, repair), ""
        elif repair == 0:
            yield world._replace(restarts=True), "a restart though a worker lives" if living else ""


def known(world: World) -> World:
    """Return the world without what nobody will look at again, so that histories that make no difference are one."""
    views = [VIEWS[view] for view in world.workers if view >= 0 and VIEWS[view].stage is not MemberStage.LEFT]
    newest = len(world.orders) - 1
    oldest = min((each.closed if each.current is None else each.current.generation for each in views), default=newest)
    orders, outcomes, present = list(world.orders), list(world.outcomes), list(world.present)
    for number in range(newest + 1):
        if number < oldest:
            orders[number], outcomes[number] = 0, ABANDONED
        if outcomes[number] != OPEN:
            present[number] = 0
    workers = tuple(
        _left(at) if view >= 0 and VIEWS[view].stage is MemberStage.LEFT else view
        for at, view in enumerate(world.workers)
    )
    return World(workers, tuple(orders), tuple(outcomes), tuple(present), *world[4:])


@functools.cache
def _left(at: int) -> int:
    nothing = Membership(0, ())
    return number_of(Member(NAMES[at], MemberStage.LEFT, None, None, nothing, NO_STATE, 0))


def _with_step(view: int, step: int) -> int:
    member = VIEWS[view]
    return view if member.step == NO_STATE and step < MADE else number_of(replace(member, step=max(step, STALE)))


@functools.cache
def _repaired(newest: int, members: int, living: int, holders: int, broken: bool) -> int | None:
    change = Membership(newest, names(members))
    made = repaired(change, living=names(living), holders=names(holders), broken=broken)
    return None if made is None else mask(made)


def _ordered(world: World, members: int) -> World:
    change = Membership(len(world.orders), names(members))
    after = world._replace(
        orders=(*world.orders, members), outcomes=(*world.outcomes, OPEN), present=(*world.present, 0)
    )
    for at, name in enumerate(NAMES):
        if members >> at & 1 and world.workers[at] == ABSENT:
            after = after.having(at, number_of(Member.newcomer(name, change)))
    return after


def _in(view: int, generation: int) -> bool:
    current = VIEWS[view].current
    return current is not None and current.generation == generation


def _lost(world: World, view: int) -> bool:
    """Whether a peer of the worker's group is not in it any more."""
    current = VIEWS[view].current
    generation = 0 if current is None else current.generation
    return any(
        each < 0 or _is_past(VIEWS[each], generation)
        for at, each in enumerate(world.workers)
        if world.orders[generation] >> at & 1
    )


def _is_past(peer: Member, generation: int) -> bool:
    if peer.stage is MemberStage.LEFT:
        return True
    current = -1 if peer.current is None else peer.current.generation
    return current > generation or (current == generation and peer.stage not in ON)
