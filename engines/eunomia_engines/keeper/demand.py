"""The number of nodes to have: a minimum, and more while jobs have waited for slots long enough."""

import math
from collections.abc import Sequence

from eunomia.model.shapes import value


@value
class AppNeed:
    """Number of slots that an app could use, and number that it holds."""

    usable: int
    held: int


class Demand:
    """The number of nodes to have, which grows after a wait and shrinks as soon as nothing waits.

    Args:
        least: minimum number of nodes.
        most: maximum number of nodes.
        wait_seconds: seconds for which slots must have been short before another node is wanted.
        group: number of nodes that the engine gives together.
    """

    def __init__(self, least: int, most: int, wait_seconds: float, group: int = 1) -> None:
        self._least, self._wait_seconds = least, wait_seconds
        self.most, self.group = most, group
        self._short_since: float | None = None

    def wanted(self, now: float, apps: Sequence[AppNeed], *, slots: int, nodes: int) -> int:
        """Return the number of nodes to have.

        Args:
            now: Unix time in seconds.
            apps: live apps.
            slots: total number of slots of the engine's nodes that are up.
            nodes: number of the engine's nodes that are up; 0: the number of slots per node is unknown.
        """
        usable, held = sum(app.usable for app in apps), sum(app.held for app in apps)
        needed = self._least if nodes == 0 or slots == 0 else math.ceil(usable * nodes / slots)
        if usable <= held or usable <= slots:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        waited = self._short_since is not None and now - self._short_since >= self._wait_seconds
        reached = needed if waited else min(needed, nodes)
        return min(self.most, max(self._least, reached))
