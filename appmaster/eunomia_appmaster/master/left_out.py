"""Nodes whose slots an app cannot use: reports them to the arbiter, and tries them again."""

import dataclasses
import itertools
from collections.abc import Collection, Iterator
from typing import Final

import structlog

from eunomia.model.shapes import value
from eunomia_appmaster.master.outbox import LeftOutReport, Outbox
from eunomia_appmaster.runtimes.nodes import NodeRuntimes
from eunomia_appmaster.runtimes.runtime import GangSpec, RefusedError, RuntimeAwayError

log = structlog.get_logger()

REACH_SECONDS: Final = 5.0
"""Seconds between two attempts to reach a node."""
CHECK_SECONDS: Final = 30.0
"""Seconds between two checks of a node that lacks something, or of two nodes that cannot reach each other."""
PASSED_SECONDS: Final = 60.0
"""Seconds for which a passed check of two nodes is not repeated before a gang starts."""


@value
class _Lack:
    """A prerequisite of a job's command that a node lacks."""

    why: str
    gang: GangSpec
    """The gang whose command or working folder the node refused."""
    since: float
    """Time of the refusal, in Unix seconds."""
    next_at: float


Pair = frozenset[str]


@value
class _Broken:
    """Two nodes that cannot reach each other, so that no gang can form over them."""

    why: str
    without: str
    """The one of the two nodes whose slots the app does not use meanwhile."""
    since: float
    """Time of the failed check, in Unix seconds."""
    next_at: float


class LeftOutNodes:
    """The nodes whose slots an app cannot use; accessed by the main thread only.

    Args:
        runtimes: the runtimes of all nodes.
        outbox: receives reports to the arbiter.
    """

    def __init__(self, runtimes: NodeRuntimes, outbox: Outbox) -> None:
        self._runtimes, self._outbox = runtimes, outbox
        self._away: dict[str, float] = {}
        """Unix time since which a node is unreachable, by node."""
        self._lacking: dict[str, _Lack] = {}
        self._broken: dict[Pair, _Broken] = {}
        self._passed: dict[Pair, float] = {}
        """Unix time of a pair's last passed check, by pair of nodes."""
        self._reported: tuple[LeftOutReport, ...] | None = None
        """The last report; None: the next report is sent even if it is empty."""

    def nodes(self) -> set[str]:
        """Return the left-out nodes that are tried again, so that connections to them are kept."""
        return {*self._away, *self._lacking, *itertools.chain(*self._broken)}

    def lacks(self, node: str, gang: GangSpec, why: str, now: float) -> bool:
        """Record that a node refused a start for a missing prerequisite; returns whether another node may have it.

        If none may, the job fails as with any command that cannot run.
        """
        others = self._runtimes.up() - self._lacking.keys() - {node}
        if not others:
            return False
        if node not in self._lacking:
            log.warning("node.lacks", node=node, why=why)
        since = self._lacking[node].since if node in self._lacking else now
        self._lacking[node] = _Lack(why=why, gang=gang, since=since, next_at=now + CHECK_SECONDS)
        return True

    def of_use(self, node: str) -> bool:
        """Return whether slots of a node can be used, according to the checks so far."""
        return node not in self._lacking and all(node != pair.without for pair in self._broken.values())

    def may_cross(self, nodes: Collection[str], slots: Collection[str], now: float, *, again: bool = False) -> bool:
        """Return whether all nodes of a gang reach each other; pairs without a recent check are checked now.

        Of two nodes that do not reach each other, the app stops using the one on which it has fewer slots, but never
        the app master's own node.

        Args:
            nodes: the gang's nodes.
            slots: the node of each slot of the app.
            now: Unix time in seconds.
            again: whether to repeat recent checks that passed.
        """
        passes = True
        for one, other in itertools.combinations(sorted(set(nodes)), 2):
            pair = frozenset((one, other))
            if pair in self._broken:
                passes = False
            elif again or now - self._passed.get(pair, -PASSED_SECONDS) >= PASSED_SECONDS:
                passes &= self._pass(pair, list(slots), now)
        return passes

    def report_again(self) -> None:
        """Report everything at the next ``look``, since the arbiter may not have the last report."""
        self._reported = None

    def look(self, now: float) -> None:
        """Repeat the checks that are due, and report changes.

        Args:
            now: Unix time in seconds.
        """
        away = {node for node in self._runtimes.all() if self._runtimes.is_unreachable(node)}
        away = {node for node in away if not self._runtimes.is_lost(node)}
        self._away = {node: self._away.get(node, now) for node in sorted(away)}
        for node in [node for node, lack in self._lacking.items() if now >= lack.next_at]:
            self._check(node, self._lacking[node], now)
        due = [pair for pair, broken in self._broken.items() if now >= broken.next_at]
        for pair in due[:1]:  # one check may take as long as a call's timeout
            self._pass(pair, [], now)
        made = tuple(self._reports())
        if made != self._reported:
            self._reported = made
            self._outbox.put("left_out", made)

    def _check(self, node: str, lack: _Lack, now: float) -> None:
        try:
            why = self._runtimes.of(node).lacks(lack.gang)
        except (RefusedError, RuntimeAwayError) as error:
            log.info("node.not_checked", node=node, why=str(error))
            why = lack.why
        if why:
            self._lacking[node] = dataclasses.replace(lack, why=why, next_at=now + CHECK_SECONDS)
        else:
            log.info("node.lacks_nothing", node=node)
            del self._lacking[node]

    def _pass(self, pair: Pair, slots: list[str], now: float) -> bool:
        """Check a pair of nodes, and store the result; returns whether it passes or cannot be checked."""
        one, other = sorted(pair)
        try:
            why = self._fault(one, other) or self._fault(other, one)
        except (RefusedError, RuntimeAwayError) as error:
            log.info("nodes.not_checked", nodes=[one, other], why=str(error))
            if (broken := self._broken.get(pair)) is not None:
                self._broken[pair] = dataclasses.replace(broken, next_at=now + CHECK_SECONDS)
            return True
        if not why:
            self._passed[pair] = now
            if self._broken.pop(pair, None) is not None:
                log.info("nodes.reach_each_other", nodes=[one, other])
            return True
        self._passed.pop(pair, None)
        known = self._broken.get(pair)
        if known is None:
            own = self._runtimes.own_node
            without = min((node for node in (other, one) if node != own), key=slots.count)
            log.warning("nodes.apart", nodes=[one, other], without=without, why=why)
            known = _Broken(why=why, without=without, since=now, next_at=0.0)
        self._broken[pair] = dataclasses.replace(known, why=why, next_at=now + CHECK_SECONDS)
        return False

    def _fault(self, here: str, there: str) -> str:
        """Return why a node cannot connect to another, at a port as gangs use it; empty: it can."""
        runtime = self._runtimes.of(there)
        host = runtime.host()
        target = f"[{host}]:{runtime.listen()}" if ":" in host else f"{host}:{runtime.listen()}"
        why = self._runtimes.of(here).connects(target)
        return why and f"{here} cannot reach {there} ({why})"

    def _apart(self, ahead: float) -> Iterator[LeftOutReport]:
        gone = self._away.keys() | self._lacking.keys()
        for pair, broken in self._broken.items():
            (other,) = pair - {broken.without}
            if pair & gone:
                continue  # the app already uses no slots of one of them
            yield LeftOutReport(
                node=broken.without,
                other=other,
                why=f"no gang forms over {other} and {broken.without}, for {broken.why}",
                since=broken.since - ahead,
                again_seconds=CHECK_SECONDS,
            )

    def _reports(self) -> list[LeftOutReport]:
        """Return the reports of all left-out nodes; their times are by the arbiter's clock."""
        own, runtimes = self._runtimes.own_node, self._runtimes
        ahead = runtimes.clock_ahead(own)
        made = [
            LeftOutReport(
                node=node,
                other=own,
                by_master=True,
                why=f"{own} (its app master) cannot reach {runtimes.address(node) or node}",
                since=since - ahead,
                again_seconds=REACH_SECONDS,
            )
            for node, since in self._away.items()
        ]
        made += [
            LeftOutReport(node=node, why=lack.why, since=lack.since - ahead, again_seconds=CHECK_SECONDS)
            for node, lack in self._lacking.items()
            if node not in self._away
        ]
        return [*made, *self._apart(ahead)]
