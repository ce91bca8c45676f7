"""The keeper of an arbiter's nodes: periodically queries engine and arbiter, and carries out a plan."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import structlog

from eunomia.errors import EunomiaError
from eunomia_engines.engine import Engine, EngineRefusedError, NodeState, one_of_each
from eunomia_engines.keeper.demand import AppNeed, Demand
from eunomia_engines.keeper.plan import Life, Member, NodeCount, Plan, Times, plan

log = structlog.get_logger()

LOOK_SECONDS: Final = 30.0
"""Seconds between two queries of the engine, such as calls of ``squeue``."""
LONGEST_PAUSE_SECONDS: Final = 600.0
"""Longest pause in seconds between requests, after a refusal of the engine or the end of nodes that had not joined."""
WHY_LEAVES: Final = "not needed now"
WHY_GONE: Final = "its time at the engine was over"


class ArbiterSide(Protocol):
    """The calls of the arbiter that the keeper uses."""

    def members(self) -> Mapping[str, Member]:
        """Return the arbiter's nodes by name."""

    def needs(self) -> Sequence[AppNeed]:
        """Return the number of slots that each live app could use, and the number that it holds."""

    def drain(self, name: str, why: str, within: float) -> None:
        """Drain a node for the reason ``why``; its leases end within ``within`` seconds."""

    def remove(self, name: str, why: str, *, is_off: bool) -> None:
        """Remove a node once it is empty; ``is_off``: at once, since its processes are known to have ended."""


class Pilots(Protocol):
    """The records of pilots, by the id of the engine's node."""

    def lives(self, engine: Engine) -> Sequence[Life]:
        """Return all nodes, in the order of their starts; raises ``EngineSilentError`` without an answer."""

    def forget(self, life: str) -> None:
        """Delete the record of a node that has ended and has left the arbiter."""


class Keeper:
    """Keeps as many nodes as are wanted.

    Args:
        engine: provides nodes.
        arbiter: uses the nodes.
        pilots: records of the nodes' pilots.
        demand: computes the number of nodes to have.
        times: periods of the plan.
        clock: returns the Unix time in seconds.
        heard: called with all nodes after each query of the engine.
    """

    def __init__(
        self,
        engine: Engine,
        arbiter: ArbiterSide,
        pilots: Pilots,
        demand: Demand,
        times: Times,
        *,
        clock: Callable[[], float] = time.time,
        heard: Callable[[Sequence[Life]], None] = lambda lives: None,
    ) -> None:
        self._engine, self._arbiter, self._pilots = engine, arbiter, pilots
        self._demand, self._times, self._clock, self._heard = demand, times, clock, heard
        self._idle_since: dict[str, float] = {}
        self._released: set[str] = set()
        self._failed: set[str] = set()
        self._pause_seconds, self._ask_again_at = 0.0, -1.0
        self.fault = ""
        """Message of the last look's error, or of a refused request; empty: there was none."""

    def run(
        self,
        stopped: threading.Event,
        look_seconds: float = LOOK_SECONDS,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Query engine and arbiter and carry out plans, until stopped; errors are logged and the next look tries again.

        Args:
            stopped: set to end the loop.
            look_seconds: seconds between two looks.
            pause: waits for the given seconds, or until there is a reason to look; None: waits for ``stopped``.
        """
        while not stopped.is_set():
            try:
                self.look()
                self.fault = ""
            except (EunomiaError, OSError) as error:  # engine or arbiter is away, or a disk is full; tried again
                if str(error) != self.fault:
                    log.warning("keeper.waits", why=str(error))
                self.fault = str(error)
            (pause or stopped.wait)(look_seconds)

    def look(self) -> Plan:
        """Query engine and arbiter once, carry out the plan, and return it.

        Raises:
            EngineSilentError: the engine does not answer.
            EunomiaError: the arbiter does not answer.
        """
        now, members = self._clock(), self._arbiter.members()
        lives = self._pilots.lives(self._engine)
        self._heard(lives)
        self._note_idle(now, members)
        here = {life.name for life in lives if life.name in members and members[life.name].state == "up"}
        needs: Sequence[AppNeed] = ()
        with contextlib.suppress(EunomiaError):  # the arbiter lists no apps before a node has registered
            needs = self._arbiter.needs()
        nodes = self._demand.wanted(now, needs, slots=sum(members[name].slots for name in here), nodes=len(here))
        wanted = NodeCount(nodes=nodes, most=self._demand.most, group=self._demand.group)
        made = plan(
            now, lives, members, wanted, self._times, idle_since=self._idle_since, released=frozenset(self._released)
        )
        self._note_failures(now, lives)
        self._carry_out(made, lives, now)
        return made

    def _note_idle(self, now: float, members: Mapping[str, Member]) -> None:
        idle = {name for name, member in members.items() if member.held == 0}
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}

    def _note_failures(self, now: float, lives: Sequence[Life]) -> None:
        """Pause before the next request if nodes ended before their launchers started, or their launchers failed."""
        new = {life.id for life in lives if _failed(life)} - self._failed
        if new:
            self._failed |= new
            self._pause(now)
            log.warning("nodes.ended_early", nodes=sorted(new), again_in_seconds=self._pause_seconds)
        elif any(life.name and life.node is not None and life.node.state is NodeState.RUNS for life in lives):
            self._pause_seconds = 0.0

    def _pause(self, now: float) -> None:
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, max(LOOK_SECONDS, 2.0 * self._pause_seconds))
        self._ask_again_at = now + self._pause_seconds

    def _carry_out(self, made: Plan, lives: Sequence[Life], now: float) -> None:
        ids = {life.name: life.id for life in lives if life.name}
        for drain in made.drains:
            self._try(lambda drain=drain: self._arbiter.drain(drain.name, drain.why, drain.within))  # type: ignore[misc]
        for name in made.leave:
            if self._try(lambda name=name: self._arbiter.remove(name, WHY_LEAVES, is_off=False)):  # type: ignore[misc]
                self._released.add(ids[name])
        for name in made.gone:
            if self._try(lambda name=name: self._arbiter.remove(name, WHY_GONE, is_off=True)):  # type: ignore[misc]
                self._pilots.forget(ids[name])
        given = [life.node for life in lives if life.node is not None and life.id in made.give_back]
        for first in one_of_each(given):
            self._engine.give_back(first.id)  # with its group
            # Only after the call: a node whose order was lost may still start.
            self._released |= {node.id for node in given if node.unit == first.unit}
        if made.ask and now >= self._ask_again_at:
            self._ask(made.ask, now)

    def _ask(self, count: int, now: float) -> None:
        try:
            if ids := list(self._engine.ask(count)):
                log.info("nodes.asked", nodes=ids)
        except EngineRefusedError as error:
            self._pause(now)
            log.warning("nodes.refused", why=str(error), again_in_seconds=self._pause_seconds)
            self.fault = str(error)

    def _try(self, order: Callable[[], None]) -> bool:
        """Send an order to the arbiter; returns False if it was refused, and the next look tries again."""
        try:
            order()
        except EunomiaError as error:
            log.warning("keeper.order_refused", why=str(error))
            return False
        return True


def _failed(life: Life) -> bool:
    """Return whether a node ended without a launcher, or with one that failed."""
    return (
        life.node is not None
        and (life.node.state is NodeState.ENDED or (life.node.state is NodeState.ENDS and life.has_failed))
        and not life.is_clean
        and (not life.name or life.has_failed)
        and life.node.began_at is not None
    )
