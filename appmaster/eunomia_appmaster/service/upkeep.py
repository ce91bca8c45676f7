"""The operator's orders about nodes (drain, keep, remove), and moves of app masters away from them.

An order is a note of the kind ``node`` with the node's name as key, written in the step of its events.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import structlog

from eunomia.arbiter import ClusterView
from eunomia.contract.events import Event, MachineDraining, MachineKept, MachineLeft
from eunomia.errors import InputError
from eunomia.journal.journal import Journal
from eunomia.journal.values import Note
from eunomia.model.cluster import Cluster
from eunomia.model.leases import GpuState
from eunomia.model.shapes import value
from eunomia.units import NEVER, NONE, Seconds
from eunomia.words import did_you_mean
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.service.apps import SubmittedApps
from eunomia_appmaster.service.joined_nodes import JoinedNodes
from eunomia_appmaster.service.layout import MACHINE_NOTE, Layout
from eunomia_appmaster.service.left_out import LeftOutNodes
from eunomia_appmaster.service.master_places import MasterPlaces
from eunomia_appmaster.service.nodes import Node, Nodes

log = structlog.get_logger()

NODE_NOTE: Final = "node"
SIZE: Final = "size"
"""Key in the note of a machine that has left: the largest number of slots of the cluster until then."""
Changes = tuple[list[Event], list[Note]]


@value
class Order:
    """The operator's order about a node."""

    drains: bool = False
    leaves: bool = False
    """Whether the node leaves the cluster once it is empty."""
    why: str = ""
    removed: str = ""
    """Id of the node's launcher at the removal: that launcher may not join again, but a later one may."""
    until: Seconds = NEVER
    """Time by which the leases on the node are ended; ``NEVER``: they end with their term or their job."""

    def note(self, node: str) -> Note:
        """Return the order's note for the journal."""
        made = {"drains": self.drains, "leaves": self.leaves, "why": self.why, "removed": self.removed}
        made |= {} if self.until == NEVER else {"until": float(self.until)}
        return Note(kind=NODE_NOTE, key=node, value=made)

    @classmethod
    def read(cls, made: Any) -> "Order":
        """Read an order from its note; a malformed note gives an empty order."""
        made = made if isinstance(made, dict) else {}
        until = made.get("until")
        return cls(
            drains=made.get("drains") is True,
            leaves=made.get("leaves") is True,
            why=str(made.get("why", "")),
            removed=str(made.get("removed", "")),
            until=Seconds(until) if isinstance(until, float) else NEVER,
        )


class Upkeep:
    """Carries out the operator's orders to drain, keep or remove nodes.

    Args:
        nodes: the machines.
        apps: the apps, whose masters run on the nodes.
        journal: the journal with the notes of orders and machines.
        joined: the nodes with a credential of their own, which becomes invalid when they leave.
        left_out: the nodes that app masters cannot reach; None if they reach all.
        system: the source of the clock.
    """

    def __init__(
        self,
        nodes: Nodes,
        apps: SubmittedApps,
        journal: Journal,
        joined: JoinedNodes,
        left_out: LeftOutNodes | None = None,
        *,
        system: System = MACHINE,
    ) -> None:
        self._nodes, self._apps, self._journal, self._joined = nodes, apps, journal, joined
        self._places, self._system = MasterPlaces(nodes, left_out or LeftOutNodes(nodes)), system
        self._orders = {name: Order.read(made) for name, made in journal.notes(NODE_NOTE).items()}
        sizes = [nodes.layout.size] if nodes.layout is not None else []
        self._most = max([*sizes, *map(_size_left, journal.notes(MACHINE_NOTE).values())], default=0)
        self._mark()

    def order(self, node: str) -> Order:
        """Return the operator's order about a node."""
        return self._orders.get(node, Order())

    def refusal(self, node: str, launcher_id: str) -> str:
        """Return why a launcher may not join as this node; empty if it may."""
        removed = self.order(node).removed
        if not removed or removed != launcher_id:
            return ""
        return f"a node that was removed must be started again to join, but got its former launcher ({node})"

    # --- orders, under the driver's lock -----------------------------------------------------------------------------

    def drain(self, view: ClusterView, node: str, why: str, until: Seconds = NEVER) -> Changes:
        """Return the events and notes that drain a node, so that no lease begins there.

        If the node is being drained already, an earlier reason and lease end are kept unless new ones are given.

        Raises:
            InputError: there is no such node.
        """
        layout, why = self._layout(node), why or self._reason(node)
        until = self.order(node).until if until == NEVER else until
        events: list[Event] = [MachineDraining(machine=name, until=until) for name in layout.machines_of(node)]
        return events, [self._ordered(node, Order(drains=True, leaves=self.order(node).leaves, why=why, until=until))]

    def keep(self, view: ClusterView, node: str) -> Changes:
        """Return the events and notes that end the draining of a node.

        Raises:
            InputError: there is no such node, or it is not being drained.
        """
        layout = self._layout(node)
        if not self.order(node).drains:
            raise InputError("a node must drain to be undrained", value=f'"{node}", which does not')
        events: list[Event] = [MachineKept(machine=name) for name in layout.machines_of(node)]
        return events, [self._ordered(node, Order())]

    def remove(self, view: ClusterView, node: str, *, now: bool, is_off: bool, why: str) -> Changes:
        """Return the events and notes that remove a node: at once, or once nothing runs there.

        Raises:
            InputError: there is no such node, it is the only remaining one, it answers although ``is_off`` is set, or
                does not answer although ``is_off`` is not set.
        """
        layout, why = self._layout(node), why or self._reason(node)
        others = [name for name in layout.nodes if name != node]
        if all(self.order(name).leaves for name in others):
            which = f"the only one that stays ({', '.join(others)} will leave)" if others else "the only one"
            raise InputError("a cluster must keep a node", value=f'"{node}", {which}, to be removed')
        known = self._nodes.get(node)
        answers = known is not None and known.registered and not known.lost
        if is_off and answers:
            raise InputError("a node that answers is not off", value=f'--is-off for "{node}"')
        if not answers and not is_off:
            rule = "a node that does not answer must be known to be off before it is removed (--is-off says so)"
            raise InputError(rule, value=f'"{node}"')
        if now or is_off or self.is_empty(view, node):
            return self._left(layout, node, why)
        events, _ = self.drain(view, node, why)
        return events, [self._ordered(node, Order(drains=True, leaves=True, why=why, until=self.order(node).until))]

    def _left(self, layout: Layout, node: str, why: str) -> Changes:
        known = self._nodes.get(node)
        removed = "" if known is None else known.launcher_id
        names = layout.machines_of(node)
        notes = [self._ordered(node, Order(why=why, removed=removed))]
        if (refused := self._joined.without(node)) is not None:
            self._joined.keep(refused)
            notes.append(refused.note())
        for app in self._apps.live:
            if app.node == node and known is not None and app.name in known.app_masters:
                app.attempts = max(app.attempts, known.app_masters[app.name].attempt)
                notes.append(app.note())
        notes += [self.left_note(layout, number) for number in layout.rows_of(node)]
        log.info("node.leaves", node=node, machines=names, why=why or None)
        return [MachineLeft(machine=name) for name in names], notes

    def left_note(self, layout: Layout, number: int) -> Note:
        """Return the note of a machine that leaves, with the largest number of slots of the cluster until then.

        The present number would be too small if slots are missing now that were present before.
        """
        made = self._journal.note_of(MACHINE_NOTE, str(number))
        made = made if isinstance(made, dict) else layout.noted(number).note(NONE).value
        self._note_size(layout)
        return Note(kind=MACHINE_NOTE, key=str(number), value=made | {"left": True, SIZE: self._most})

    @property
    def most_slots(self) -> int:
        """The largest number of slots that the cluster has had, according to the journal.

        A restarted arbiter derives the number from the notes of machines that have left, and from the present machines:
        none of these has left since the last such note.

        Slots that launchers do not find count only if they were present together with all others.
        """
        self._note_size(self._nodes.layout)
        return self._most

    @property
    def has_had_others(self) -> bool:
        """Whether the cluster has had several machines, or one that is not the arbiter's; True before the first."""
        layout = self._nodes.layout
        return layout is None or len(layout.cluster.machines) > 1 or not all(node.is_head for node in self._nodes)

    def _note_size(self, layout: Layout | None) -> None:
        """Update the largest number of slots with the slots of a layout that are present now."""
        if layout is not None:
            size = layout.size - sum(len(self._nodes.missing(node)) for node in self._nodes)
            self._most = max(self._most, size)

    # --- what follows ------------------------------------------------------------------------------------------------

    def follow(self, cluster: Cluster) -> None:
        """Remove machines that have left the cluster from the layout, and the nodes without any other machine."""
        layout = self._nodes.layout
        if layout is not None and cluster.left != layout.cluster.left:
            self._nodes.move_to(layout.without(cluster.left))
        self._note_size(self._nodes.layout)  # slots that are there now may be missing later
        self._mark()

    def look(self, view: ClusterView) -> Changes:
        """Return the events and notes that are due: empty nodes leave, and app masters move away from lost nodes."""
        events: list[Event] = []
        notes = [app.note() for app in self._moved(view)]
        layout = self._nodes.layout
        for name in [name for name, order in self._orders.items() if order.leaves]:
            if layout is not None and name in layout.slots and len(layout.nodes) > 1 and self.is_empty(view, name):
                more, noted = self._left(layout, name, self.order(name).why)
                events, notes = events + more, notes + noted
        return events, notes

    def is_empty(self, view: ClusterView, node: str) -> bool:
        """Return whether no lease has a slot of a node, and no process is known to remain there."""
        layout, known = self._nodes.layout, self._nodes.get(node)
        if layout is None or known is None:
            return True
        held = view.gpus
        free = all(held.app[gpu] == NONE and held.state[gpu] != GpuState.LEAVING for gpu in layout.gpus_of(node))
        return free and not any(state.busy for state in known.slot_states.values())

    def _moved(self, view: ClusterView) -> Iterator[Any]:
        """Move the masters of apps whose node is gone, lost, drained and empty, or cut off; yields these apps.

        The next attempt's number is above those that any node has reported, so that it supersedes a master that still
        runs.
        """
        places = {node.name for node in self._nodes.for_masters()}
        for app in self._apps.live if places else ():
            node = self._nodes.get(app.node)
            over = app.node not in places and (node is None or self._is_over(view, node))
            better = "" if over else self._places.better(view, app, self._system.unix_time())
            if not over and not better:
                continue
            app.attempts = 1 + max([app.attempts, *(one.attempt for one in self._nodes.masters_of(app.name))])
            load = Counter(each.node for each in self._apps.live)
            former, app.node = app.node, better or self._nodes.with_least(load)
            log.warning("app_master.moved", app=app.name, before=former, node=app.node, attempt=app.attempts)
            yield app

    def _is_over(self, view: ClusterView, node: Node) -> bool:
        return node.lost or (node.drains and self.is_empty(view, node.name))

    def _reason(self, node: str) -> str:
        """Return why a node is being drained; empty if it is not, or no reason was given."""
        order = self.order(node)
        return order.why if order.drains else ""

    def _ordered(self, node: str, order: Order) -> Note:
        self._orders[node] = order
        self._mark()
        return order.note(node)

    def _mark(self) -> None:
        for node in self._nodes:
            node.drains = self.order(node.name).drains

    def _layout(self, node: str) -> Layout:
        layout = self._nodes.layout
        if layout is None or node not in layout.slots:
            there = () if layout is None else layout.nodes
            value = f'"{node[:100]}"{did_you_mean(node, there)}'
            raise InputError(f"a node must be one of the cluster ({', '.join(there)})", value=value)
        return layout


def _size_left(noted: Any) -> int:
    size = noted.get(SIZE, 0) if isinstance(noted, dict) else 0
    return size if isinstance(size, int) else 0
