"""Nodes that apps cannot use: the app masters' reports, and the effect on the arbiter's rounds.

The reports are not journaled: app masters repeat them when they register with a restarted arbiter; until then, an app
may get a slot that it cannot use and gives back.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import numpy as np
import structlog

from eunomia.arbiter import Arbiter
from eunomia.contract.events import GpusReturned, MachineBack
from eunomia.model.leases import GpuState
from eunomia.model.shapes import value
from eunomia.units import NONE, AppId, Ints
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.left_out_rounds import without_slots_left_out
from eunomia_appmaster.service.nodes import Nodes

log = structlog.get_logger()

DAY_SECONDS: Final = 86_400.0
IDLE_SECONDS: Final = 20.0
"""Seconds after which an app loses its idle slots on a node that its master cannot reach."""


@value
class LeftOut:
    """A node on which an app gets no slots, and the reason."""

    node: str
    why: str
    other: str = ""
    """The other node of a pair that cannot reach each other; empty if the node lacks something."""
    by_master: bool = False
    """Whether ``other`` is the node of the app's master."""
    since: float = 0.0
    """Time since which the node is left out, in Unix seconds."""
    again_seconds: float = 0.0
    """Seconds between two attempts to use the node."""

    @classmethod
    def read(cls, made: pb.LeftOutNode, now: float) -> "LeftOut":
        """Convert an app master's report; ``now``: Unix seconds."""
        return cls(
            node=made.node,
            why=made.why,
            other=made.other,
            by_master=made.by_master,
            since=now - made.since_seconds_ago,
            again_seconds=made.again_seconds,
        )

    def words(self, now: float) -> str:
        """Return the report as text; ``now``: Unix seconds."""
        form = "%H:%M" if now - self.since < DAY_SECONDS else "%Y-%m-%d %H:%M"
        since = datetime.fromtimestamp(self.since).strftime(form)  # local time, as everywhere in the output
        return f"no slots on {self.node}: {self.why} since {since}; tried again every {self.again_seconds:g} s"


class LeftOutNodes:
    """The nodes on which apps get no slots, by app.

    Args:
        nodes: the machines.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._by_app: dict[str, tuple[LeftOut, ...]] = {}
        self._arbiter: Arbiter | None = None
        self._plain: Any = None
        self._idle_since: dict[tuple[str, int], float] = {}
        """Time since which nothing has run on a slot that an app holds, by app and GPU."""

    def serve(self, arbiter: Arbiter) -> None:
        """Exclude these nodes from an arbiter's rounds, from now on, whichever stages the arbiter uses."""
        self._arbiter, self._plain = arbiter, (arbiter.chosen, arbiter.fallback)
        self._follow()

    def of(self, app: str) -> tuple[LeftOut, ...]:
        """Return the nodes on which an app gets no slots."""
        return self._by_app.get(app, ())

    def on(self, node: str) -> Iterator[tuple[str, LeftOut]]:
        """Yield the apps that get no slots on a node, and those whose masters on it cannot reach another node."""
        for app, found in self._by_app.items():
            yield from ((app, one) for one in found if node in (one.node, one.other))

    def hear(self, app: str, made: Iterable[LeftOut]) -> list[MachineBack]:
        """Update an app's list, under the driver's lock.

        Returns:
            Events whose only effect is a round, if a node may be used again.
        """
        before, now = self._by_app.get(app, ()), tuple(made)
        if now:
            self._by_app[app] = now
        else:
            self._by_app.pop(app, None)
        names = {one.node for one in now}
        for one in now:
            if one.node not in {known.node for known in before}:
                log.warning("node.left_out", app=app, node=one.node, other=one.other or None, why=one.why)
        back = [one.node for one in before if one.node not in names]
        for node in back:
            log.info("node.taken_in", app=app, node=node)
        if names != {one.node for one in before}:
            self._follow()
        return [event for node in back[:1] for event in self._round(node)]

    def pairs(self) -> set[frozenset[str]]:
        """Return the pairs of nodes that cannot reach each other, according to the app masters."""
        return {frozenset((one.node, one.other)) for found in self._by_app.values() for one in found if one.other}

    def idle(self, now: float) -> list[GpusReturned]:
        """Return events that give back idle slots which an app's master cannot use for a job.

        Workers there may have ended without the app master's knowledge.

        Args:
            now: seconds of a monotonic clock.
        """
        found = [(app, gpu) for app in self._by_app for gpu in self._idle(app)]
        self._idle_since = {key: self._idle_since.get(key, now) for key in found}
        due: dict[str, list[int]] = {}
        for (app, gpu), since in self._idle_since.items():
            if now - since >= IDLE_SECONDS:
                due.setdefault(app, []).append(gpu)
        return [GpusReturned(app=AppId(app), gpus=tuple(sorted(gpus))) for app, gpus in due.items()]

    def _idle(self, app: str) -> Iterator[int]:
        layout, arbiter = self._nodes.layout, self._arbiter
        row = NONE if arbiter is None else arbiter.view.app_row(AppId(app))
        if layout is None or arbiter is None or row == NONE:
            return
        held = arbiter.view.gpus
        for one in self.of(app):
            for gpu in layout.gpus_of(one.node) if one.by_master else ():
                mine = held.app[gpu] == row and held.state[gpu] == GpuState.HELD
                if mine and self._nodes.is_empty(one.node, layout.places[gpu].slot):
                    yield gpu

    def keep_only(self, apps: Iterable[str]) -> None:
        """Drop the reports of all apps except these."""
        gone = self._by_app.keys() - set(apps)
        for app in gone:
            del self._by_app[app]
        if gone:
            self._follow()

    def barred(self) -> Mapping[int, Ints]:
        """Return the GPUs that each app must not get, by the app's row."""
        layout, arbiter = self._nodes.layout, self._arbiter
        if layout is None or arbiter is None:
            return {}
        found: dict[int, Ints] = {}
        for app, nodes in self._by_app.items():
            row = arbiter.view.app_row(AppId(app))
            gpus = [gpu for one in nodes for gpu in layout.gpus_of(one.node)]
            if row != NONE and gpus:
                found[row] = np.unique(np.array(gpus, np.int64))
        return found

    def _follow(self) -> None:
        """Apply the lists to the arbiter's rounds; no effect before ``serve``."""
        if self._arbiter is None:
            return
        chosen, fallback = self._plain
        if self._by_app:
            chosen, fallback = (without_slots_left_out(stages, self.barred) for stages in (chosen, fallback))
        self._arbiter.fallback = fallback
        self._arbiter.use(chosen)

    def _round(self, node: str) -> Iterator[MachineBack]:
        layout, arbiter = self._nodes.layout, self._arbiter
        if layout is None or arbiter is None:
            return
        up = [gpu for gpu in layout.gpus_of(node) if arbiter.view.gpus.state[gpu] != GpuState.DOWN]
        for machine, gpus in layout.by_machine(up[:1]).items():
            yield MachineBack(machine=machine, gpus=gpus)
