"""Decides when an app master gives back slots of nodes that it cannot reach; ``LeftOutNodes`` reports these nodes."""

from collections.abc import Collection

import structlog

from eunomia_appmaster.runtimes.nodes import NodeRuntimes

log = structlog.get_logger()

FIRST_PAUSE_SECONDS = 5.0
"""Seconds for which the slots of an unreachable node are kept before they are given back the first time."""
LONGEST_PAUSE_SECONDS = 320.0
"""Longest time in seconds for which slots of an unreachable node are kept; it doubles each time, since otherwise the
arbiter would grant them to the app again and again."""


class AwayNodes:
    """The unreachable nodes on which the app has slots.

    Args:
        runtimes: the runtimes of all nodes.
    """

    def __init__(self, runtimes: NodeRuntimes) -> None:
        self._runtimes = runtimes
        self._since: dict[str, float] = {}
        """Unix time in seconds since which slots of an unreachable node are kept, by node."""
        self._times: dict[str, int] = {}
        """How often in a row the slots of a node were given back, by node."""

    def answered(self, node: str) -> None:
        """Record that a node has answered."""
        if self._times.pop(node, 0):
            log.info("node.reached", node=node)

    def due(self, nodes: Collection[str], now: float) -> set[str]:
        """Return the nodes whose slots must be given back now.

        Args:
            nodes: the nodes on which the app has slots.
            now: Unix time in seconds.
        """
        away = {node for node in nodes if self._runtimes.is_unreachable(node)}
        self._since = {node: self._since.get(node, now) for node in away}
        over = {node for node in away if now - self._since[node] >= self._pause(node)}
        for node in over:
            del self._since[node]
            if not self._times.get(node):
                log.warning("node.not_reached", node=node, why=self._runtimes.why_away(node))
            self._times[node] = self._times.get(node, 0) + 1
        return over

    def _pause(self, node: str) -> float:
        return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._times.get(node, 0), 30))
