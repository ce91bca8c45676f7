"""Where an app's master would reach more of the cluster than where it runs."""

from collections import Counter
from typing import Final

from eunomia.arbiter import ClusterView
from eunomia.model.leases import GpuState
from eunomia.units import NONE, AppId
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.left_out import LeftOutNodes
from eunomia_appmaster.service.nodes import Nodes

MOVE_SECONDS: Final = 30.0
"""Seconds for which a master has not reached a node before it moves: a shorter fault costs no restart."""


class MasterPlaces:
    """Compares nodes for app masters by what they reach.

    Two nodes count as apart, in both directions, if a master on one has not reached the other, or no gang formed.

    Args:
        nodes: the machines.
        left_out: what app masters have found.
    """

    def __init__(self, nodes: Nodes, left_out: LeftOutNodes) -> None:
        self._nodes, self._left_out = nodes, left_out

    def better(self, view: ClusterView, app: App, now: float) -> str:
        """Return the node to which an app's master moves; empty: it stays.

        A node is better from which more of the slots are reached that the app holds; of equal ones, more slots at all.

        Args:
            view: the arbiter's.
            app: live.
            now: Unix seconds.
        """
        found = [one for one in self._left_out.of(app.name) if one.by_master and one.other == app.node]
        layout = self._nodes.layout
        if layout is None or not any(now - one.since >= MOVE_SECONDS for one in found):
            return ""
        apart, row = self._left_out.pairs(), view.app_row(AppId(app.name))
        there = [node.name for node in self._nodes if node.registered and not node.lost]
        held = Counter[str]()
        for node in there if row != NONE else ():
            gpus = layout.gpus_of(node)
            held[node] = sum(view.gpus.app[gpu] == row and view.gpus.state[gpu] == GpuState.HELD for gpu in gpus)

        def reach(place: str) -> tuple[int, int]:
            reached = [node for node in there if frozenset((place, node)) not in apart]
            return sum(held[node] for node in reached), sum(len(layout.gpus_of(node)) for node in reached)

        up = sorted(node.name for node in self._nodes if node.is_up)
        best = max(up, key=reach, default="")
        return best if best and reach(best) > reach(app.node) else ""
