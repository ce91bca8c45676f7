"""Chooses the node from which an app's master reaches the most slots."""

from collections import Counter
from typing import Final

from eunomia.arbiter import ClusterView
from eunomia.model.leases import GpuState
from eunomia.units import NONE, AppId
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.left_out import LeftOutNodes
from eunomia_appmaster.service.nodes import Nodes

MOVE_SECONDS: Final = 30.0
"""Seconds for which a master must fail to reach a node before it is moved, so that a short fault causes no move."""


class MasterPlaces:
    """Compares nodes for app masters by the slots that can be reached from them.

    Two nodes count as disconnected, in both directions, if a master on one did not reach the other, or no gang could
    form across them.

    Args:
        nodes: the machines.
        left_out: the reports of app masters.
    """

    def __init__(self, nodes: Nodes, left_out: LeftOutNodes) -> None:
        self._nodes, self._left_out = nodes, left_out

    def better(self, view: ClusterView, app: App, now: float) -> str:
        """Return the node to which an app's master should move; empty if it should stay.

        A node is better if more of the app's slots can be reached from it; in a tie, if more slots in total can.

        Args:
            view: the arbiter's.
            app: a live app.
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
