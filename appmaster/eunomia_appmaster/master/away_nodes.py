"""Nodes that an app master cannot reach: when it gives their slots back. ``LeftOutNodes`` says so to users."""

from collections.abc import Collection

import structlog

from eunomia_appmaster.runtimes.nodes import NodeRuntimes

log = structlog.get_logger()

FIRST_PAUSE_SECONDS = 5.0
"""Seconds for which slots of a node that is not reached are held before they are given back the first time."""
LONGEST_PAUSE_SECONDS = 320.0
"""The pause doubles each time, up to this: else the arbiter grants them, and they come back, without an end."""


class AwayNodes:
    """The nodes with slots of the app that its app master does not reach.

    Args:
        runtimes: of all nodes.
    """

    def __init__(self, runtimes: NodeRuntimes) -> None:
        self._runtimes = runtimes
        self._since: dict[str, float] = {}
        """By node: Unix time since which slots there are held while it is unreachable."""
        self._times: dict[str, int] = {}
        """By node: how often in a row its slots were given back."""

    def answered(self, node: str) -> None:
        """Note that a node has answered."""
        if self._times.pop(node, 0):
            log.info("node.reached", node=node)

    def due(self, nodes: Collection[str], now: float) -> set[str]:
        """Return the nodes whose slots are given back now.

        Args:
            nodes: on which the app has slots.
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
