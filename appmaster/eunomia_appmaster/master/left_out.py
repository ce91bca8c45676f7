"""Nodes on which an app can use no slot: what its master reports of them, and when it tries them again."""

import dataclasses
from typing import Final

import structlog

from eunomia.model.shapes import value
from eunomia_appmaster.master.outbox import LeftOutReport, Outbox
from eunomia_appmaster.runtimes.nodes import NodeRuntimes
from eunomia_appmaster.runtimes.runtime import GangSpec, RefusedError, RuntimeAwayError

log = structlog.get_logger()

REACH_SECONDS: Final = 5.0
"""Seconds between two tries to reach a node."""
CHECK_SECONDS: Final = 30.0
"""Seconds between two checks of a node that lacks something."""


@value
class _Lack:
    """What a node does not have."""

    why: str
    gang: GangSpec
    """The command and the working folder that were refused."""
    since: float
    """Unix seconds."""
    next_at: float


class LeftOutNodes:
    """The nodes on which an app can use no slot; used by the main thread.

    Args:
        runtimes: of all nodes.
        outbox: for the arbiter.
    """

    def __init__(self, runtimes: NodeRuntimes, outbox: Outbox) -> None:
        self._runtimes, self._outbox = runtimes, outbox
        self._away: dict[str, float] = {}
        """By node that is not reached: Unix time since when."""
        self._lacking: dict[str, _Lack] = {}
        self._reported: tuple[LeftOutReport, ...] | None = None
        """None: to be reported, whatever it is."""

    def nodes(self) -> set[str]:
        """Return the nodes that are tried again, with which a connection is kept."""
        return self._away.keys() | self._lacking.keys()

    def lacks(self, node: str, gang: GangSpec, why: str, now: float) -> bool:
        """Note that a node refused a start for want of something; returns whether another node may have it.

        Where no other may, the job fails as with any command that cannot run.
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
        """Return whether slots of a node may be used, as far as is known."""
        return node not in self._lacking

    def report_again(self) -> None:
        """Report everything with the next look: the arbiter has not heard it."""
        self._reported = None

    def look(self, now: float) -> None:
        """Try again what is due, and report what has changed.

        Args:
            now: Unix time in seconds.
        """
        away = {node for node in self._runtimes.all() if self._runtimes.is_unreachable(node)}
        away = {node for node in away if not self._runtimes.is_lost(node)}
        self._away = {node: self._away.get(node, now) for node in sorted(away)}
        for node in [node for node, lack in self._lacking.items() if now >= lack.next_at]:
            self._check(node, self._lacking[node], now)
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

    def _reports(self) -> list[LeftOutReport]:
        own, runtimes = self._runtimes.own_node, self._runtimes
        made = [
            LeftOutReport(
                node=node,
                other=own,
                by_master=True,
                why=f"{own} (its app master) cannot reach {runtimes.address(node) or node}",
                since=since,
                again_seconds=REACH_SECONDS,
            )
            for node, since in self._away.items()
        ]
        made += [
            LeftOutReport(node=node, why=lack.why, since=lack.since, again_seconds=CHECK_SECONDS)
            for node, lack in self._lacking.items()
            if node not in self._away
        ]
        return made
