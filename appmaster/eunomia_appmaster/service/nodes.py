"""The arbiter's view of the machines: reports of launchers, and orders to them.

Orders are not stored but derived from the arbiter's state each time: a leaving GPU is revoked until its slot is
reported as given back. So a lost answer, a restarted launcher and a restarted arbiter need no special case.
"""

import asyncio
import math
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import structlog

from eunomia.arbiter import ClusterView
from eunomia.contract.events import MachineBack, MachineLost, Released, Retuned
from eunomia.model.leases import GpuState
from eunomia.units import NONE, Epoch, LeaseId, Seconds
from eunomia_appmaster.node.loop_clock import LoopClock
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.parts import detached
from eunomia_appmaster.service.clock_offsets import ClockOffset
from eunomia_appmaster.service.container_statuses import ContainerStatuses
from eunomia_appmaster.service.layout import Layout
from eunomia_appmaster.service.node_leases import HeldLease, NodeLeases
from eunomia_appmaster.service.tuned import last_orders, retuned, settings

log = structlog.get_logger()

OrderKey = tuple[object, ...]


class Node:
    """One machine with its launcher.

    Args:
        name: the node's name.
        request: its registration.
        system: has the machine's clock.
    """

    def __init__(self, name: str, request: pb.RegisterNodeRequest | None = None, *, system: System = MACHINE) -> None:
        self._system = system
        self.name = name
        self.registration_id = ""
        self.launcher_id = ""
        self.home = ""
        self.hangs, self.last_hang = 0, ""
        """Number of its launchers that were killed because their loop hung, and the reason for the last."""
        self.version, self.load = "", 0.0
        """Its version of Eunomia; the load average of its machine."""
        self.drains = False
        """Whether the operator drains the node, so that no lease begins on it."""
        self.calls = 0
        """Number of heartbeats and reports so far."""
        self.waiting = 0
        """Number of heartbeats that wait for their answer."""
        self.container_manager_address = ""
        self.is_head = False
        """Whether its launcher shares the arbiter's state folder and ends with the arbiter's machine."""
        self.slots: frozenset[int] = frozenset()
        """Slots that the node's launcher found at its start."""
        self.uuids: frozenset[str] = frozenset()
        """UUIDs of its GPUs; empty: its slots are shares of its CPUs."""
        self.unlike = False
        """Whether its slots differ from the cluster's; it registers again once the arbiter can change them."""
        self.down: dict[int, int] = {}
        """For each slot that is down on a responding machine, the epoch up to which all processes must have ended
        before the slot counts as back."""
        self.slot_states: dict[int, pb.SlotState] = {}
        self.containers = ContainerStatuses()
        self.app_masters: dict[str, pb.AppMasterStatus] = {}
        self.heard_at = self._system.uptime()
        """Uptime of its last call, in seconds."""
        self.lease = HeldLease(system=system)
        self.lost = False
        self.fence: int | None = None
        """The epoch up to which all processes must have ended before the node counts as back; None if not lost."""
        self.asked: dict[str, int] = {}
        """Number of the app master's attempt that a user requested, by app."""
        self.mark = ""
        """The journal's mark that its launcher last received; empty if not known."""
        self.draining = False
        """Whether its launcher was ordered to end, and is ending its containers first."""
        self.left = False
        """Whether its launcher has ended in order, after all of its containers."""
        self.clock_offset = ClockOffset()
        self.response_id = 1
        self.changed = asyncio.Event()
        self._order_keys: frozenset[OrderKey] | None = None
        if request is not None:
            self.register(request)

    @property
    def silent_seconds(self) -> float:
        """Return the seconds since the node's last call."""
        return self._system.uptime() - self.heard_at

    @property
    def is_up(self) -> bool:
        """Return whether work may be started on the node."""
        return self.runs and not self.drains

    @property
    def runs(self) -> bool:
        """Return whether the node responds and its launcher is not ending; the operator may have drained it."""
        return self.registered and not self.lost and not self.draining

    @property
    def registered(self) -> bool:
        """Return whether the node has registered with this process."""
        return bool(self.registration_id)

    def register(self, request: pb.RegisterNodeRequest) -> None:
        """Apply a registration, which contains the node's whole state."""
        self.registration_id = uuid.uuid4().hex
        self.launcher_id, self.home, self.mark = request.launcher_id, request.home, request.mark
        self.hangs, self.last_hang = request.hangs, request.last_hang[:500]
        self.container_manager_address = request.container_manager_address
        self.is_head, self.version, self.load = request.head, request.version, request.load
        self.slots = frozenset(slot.index for slot in request.slots)
        self.uuids = frozenset(slot.uuid for slot in request.slots if slot.uuid)
        self.unlike = self.left = False
        self.slot_states, self.containers, self.app_masters = {}, ContainerStatuses(), {}
        self.hear(request.containers, request.app_masters, request.slot_states, draining=request.draining)
        self.order(frozenset(), force=True)

    def hear(
        self,
        containers: Iterable[pb.ContainerStatus],
        app_masters: Iterable[pb.AppMasterStatus],
        slot_states: Iterable[pb.SlotState],
        *,
        draining: bool | None = None,
    ) -> bool:
        """Apply the node's reports; statuses older than the known ones are ignored.

        Args:
            containers: statuses of containers that have changed.
            app_masters: statuses of app masters that have changed.
            slot_states: states of any slots.
            draining: whether the launcher is ending; None: unchanged.

        Returns:
            Whether the reports contain a change.
        """
        news = draining is not None and draining != self.draining
        if draining is not None and news:
            self.draining = draining
            log.warning("node.draining" if draining else "node.back_from_draining", node=self.name)
        self.heard_at = self._system.uptime()
        for status in containers:
            news |= self.containers.hear(status)
        for master in app_masters:
            before = self.app_masters.get(master.app)
            if before is None or master.version > before.version:
                self.app_masters[master.app], news = detached(master), True
        for state in slot_states:
            if self.slot_states.get(state.slot) != state:
                self.slot_states[state.slot], news = detached(state), True
        return news

    def stir(self) -> None:
        """Answer the node's heartbeat at once, so that it sends the next one."""
        self.response_id += 1
        self.changed.set()

    def order(self, keys: frozenset[OrderKey], *, force: bool = False) -> None:
        """Set the node's present orders; if they have changed, its heartbeat is answered at once.

        Args:
            keys: keys that identify the orders.
            force: only forget the former orders, so that the next call of this method answers in any case.
        """
        if force:
            self._order_keys = None
        elif keys != self._order_keys:
            self._order_keys = keys
            self.stir()

    def ask(self, app: str, attempts: int = 0) -> int:
        """Request another attempt of an app's master for a user; returns the attempt's number.

        Args:
            app: name of the app.
            attempts: number of attempts in the arbiter's record, in case the app's status was dropped.
        """
        status = self.app_masters.get(app)
        attempt = max(attempts, 0 if status is None else status.attempt) + 1
        self.asked[app] = attempt
        return attempt

    def has_yet_to_start(self, app: str, attempt: int) -> bool:
        """Return whether the node has not started an attempt of an app's master yet."""
        status = self.app_masters.get(app)
        return status is None or status.attempt < attempt

    def forget_masters(self, known: Collection[str]) -> None:
        """Drop the statuses of ended app masters, except those of known apps."""
        ended = [app for app, status in self.app_masters.items() if status.state == pb.APP_MASTER_COMPLETED]
        for app in ended:
            if app not in known:
                del self.app_masters[app]
                self.asked.pop(app, None)

    def given_back(self, slot: int, epoch: int) -> bool:
        """Return whether no container of this epoch or an older one runs or can start on a slot."""
        state = self.slot_states.get(slot)
        return state is not None and state.closed_epoch >= epoch and not state.busy


class Nodes:
    """All machines of the cluster.

    Args:
        layout: the slot of each GPU; None before the first machine registers.
        silence: seconds of silence after which a machine is lost, provided that its lease has ended.
        leases: lengths of the machines' leases.
        system: has the machine's clock.
    """

    def __init__(
        self, layout: Layout | None, silence: Seconds, leases: NodeLeases, *, system: System = MACHINE
    ) -> None:
        self._system = system
        self.layout = layout
        self.silence = silence
        self.leases = leases
        self.clock = LoopClock(system.uptime)
        """Clock for silence that counts only while the arbiter's loop runs; each check of the machines ticks it."""
        self.deadlines: dict[int, float] = {}
        """When a leaving GPU's processes are killed, by GPU, in seconds of ``System.monotonic``."""
        self._nodes = {name: Node(name, system=system) for name in (layout.nodes if layout is not None else ())}
        if leases.were_given or self.are_several:
            leases.begin()
            for node in self:
                node.lease.ends_at = system.uptime() + leases.longest

    # --- their leases ----------------------------------------------------------------------------------------------

    @property
    def are_several(self) -> bool:
        """Whether the cluster has several nodes."""
        return self.layout is not None and len(self.layout.nodes) > 1

    def is_leased(self, node: Node) -> bool:
        """Return whether a node's lease has an end; the arbiter's own node has an endless one while it is alone."""
        return self.are_several or not node.is_head

    def lease_seconds(self, node: Node) -> float:
        """Return the length in seconds of the lease that a node gets with an answer; 0 if it has no end."""
        return self.leases.seconds if self.is_leased(node) else 0.0

    def is_over(self, node: Node) -> bool:
        """Return whether a node's lease and margin have expired, so that its work has ended; True without a lease."""
        return not self.is_leased(node) or self._system.uptime() > node.lease.ends_at + self.leases.margin

    def are_here(self) -> bool:
        """Return whether the starting arbiter can stop waiting for machines; each call ticks the clock.

        The arbiter waits for a first machine, and for known ones until they would count as lost.
        """
        self.clock.tick()
        if self.layout is None:
            return any(node.registered for node in self)
        wait = max(float(self.silence), self.leases.ordinary_wait) if self.are_several else self.silence
        return all(node.registered or self.clock.silence(node.heard_at) > wait for node in self)

    def unheard(self, view: ClusterView) -> Iterator[MachineLost]:
        """Yield events that withhold free slots of nodes that have not registered yet and may hold a lease."""
        for node in self if self.layout is not None else ():
            if self.layout is None or node.registered or node.lost or self.is_over(node):
                continue
            held = view.gpus
            gpus = [
                gpu
                for gpu in self.layout.gpus_of(node.name)
                if held.app[gpu] == NONE and held.state[gpu] not in (GpuState.LEAVING, GpuState.DOWN)
            ]
            node.down |= {self.layout.places[gpu].slot: view.last_epoch for gpu in gpus}
            log.warning("node.unheard", node=node.name, slots_left_out=len(gpus))
            for machine, free in self.layout.by_machine(gpus).items():
                yield MachineLost(machine=machine, gpus=free)

    def note_renewals(self) -> None:
        """Journal that no node holds a lease of an earlier process, once that is the case."""
        if all(node.lost or node.lease.left_seconds <= self.leases.seconds for node in self if self.is_leased(node)):
            self.leases.all_renewed()

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def get(self, name: str) -> Node | None:
        """Return a node by name; None if there is none."""
        return self._nodes.get(name)

    def add(self, request: pb.RegisterNodeRequest) -> Node:
        """Apply a registration; slots that the layout lacks are not used."""
        node = self._nodes.setdefault(request.node, Node(request.node, system=self._system))
        node.register(request)
        self.hear_lease(node, request.lease_left_seconds, endless=request.lease_endless)
        return node

    def hear_lease(self, node: Node, left_seconds: float, *, endless: bool) -> None:
        """Apply a node's report of its lease's remaining time, capped at the longest lease that may exist."""
        most = math.inf if node.is_head else self.leases.longest
        node.lease.heard(min(left_seconds, most), endless=endless and node.is_head)

    def move_to(self, layout: Layout) -> None:
        """Use another layout; nodes without a slot in it are dropped."""
        self.layout = layout
        for name in [name for name in self._nodes if name not in layout.slots]:
            del self._nodes[name]

    def masters_of(self, app: str) -> list[pb.AppMasterStatus]:
        """Return the nodes' reports about an app's masters."""
        return [node.app_masters[app] for node in self if app in node.app_masters]

    def for_masters(self) -> list[Node]:
        """Return the nodes to which app masters may move: those that are up, else those that drain and respond.

        A drained node with running jobs needs their app masters, which detect the jobs' ends.
        """
        return [node for node in self if node.is_up] or [node for node in self if node.runs]

    def with_least(self, load: Mapping[str, int]) -> str:
        """Return the node for a new app master: the arbiter's own if it is up, else the least loaded.

        Args:
            load: number of app masters by node.
        """
        found = self.for_masters() or list(self)
        return min(found, key=lambda node: (not node.is_head, load.get(node.name, 0), node.name)).name

    def is_empty(self, node: str, slot: int) -> bool:
        """Return whether a launcher reports that no process is left on a slot."""
        known = self._nodes.get(node)
        state = None if known is None or not known.registered else known.slot_states.get(slot)
        return state is not None and not state.busy

    # --- from launchers' reports to events -------------------------------------------------------------------------

    def events(self, view: ClusterView) -> "list[Released | MachineLost | MachineBack | Retuned]":
        """Return the events in the machines' last reports: slots given back or retuned, machines lost or back."""
        self.clock.tick()
        if self.layout is None:
            return []
        layout = self.layout
        return [
            *self._released(view, layout),
            *self._lost(view, layout),
            *self._slots_lost(view, layout),
            *self._back(layout),
            *self._slots_back(layout),
            *retuned(view, lambda gpu, epoch: self._is_tuned(layout, gpu, epoch)),
        ]

    def missing(self, node: Node) -> list[int]:
        """Return the slots of a node that its launcher did not find."""
        if self.layout is None or not node.registered:
            return []
        return [self.layout.places[gpu].slot for gpu in self.layout.missing(node.name, node.slots)]

    def _released(self, view: ClusterView, layout: Layout) -> Iterator[Released]:
        held = view.gpus
        back: dict[tuple[int, int], list[int]] = {}
        for gpu in np.flatnonzero(held.state == GpuState.LEAVING).tolist():
            place = layout.places[gpu]
            node = self._nodes.get(place.node)
            lease, epoch = int(held.lease[gpu]), int(held.epoch[gpu])
            if lease != NONE and node is not None and node.registered and node.given_back(place.slot, epoch):
                back.setdefault((lease, epoch), []).append(gpu)
        for (lease, epoch), gpus in back.items():
            yield Released(lease=LeaseId(lease), epoch=Epoch(epoch), gpus=tuple(gpus))

    def _lost(self, view: ClusterView, layout: Layout) -> Iterator[MachineLost]:
        for node in self:
            silent = self.clock.silence(node.heard_at)
            over = silent > self.silence and self.is_over(node)
            if not node.lost and (over or node.left):
                log.warning("machine.lost", node=node.name, silent_seconds=round(silent, 1), in_order=node.left)
                node.lost = True
                node.registration_id = ""  # it must register again, and is then fenced
                node.fence = view.last_epoch
                yield from (MachineLost(machine=machine) for machine in layout.machines_of(node.name))

    def _back(self, layout: Layout) -> Iterator[MachineBack]:
        for node in self:
            fenced = node.fence is not None and all(node.given_back(slot, node.fence) for slot in node.slots)
            if node.lost and node.registered and fenced:
                log.info("machine.back", node=node.name)
                gone = {layout.places[gpu].slot: gpu for gpu in layout.missing(node.name, node.slots)}
                node.down = dict.fromkeys(gone, node.fence or 0)
                node.lost, node.fence = False, None
                here = [gpu for gpu in layout.gpus_of(node.name) if gpu not in gone.values()]
                for machine, gpus in layout.by_machine(here).items():
                    yield MachineBack(machine=machine, gpus=gpus if gone else ())

    def _slots_lost(self, view: ClusterView, layout: Layout) -> Iterator[MachineLost]:
        """Yield events for slots that a launcher did not find at its start, as lost GPUs."""
        for node in self:
            if node.lost or not node.registered:
                continue
            gone = [gpu for gpu in layout.missing(node.name, node.slots) if layout.places[gpu].slot not in node.down]
            if gone:
                slots = [layout.places[gpu].slot for gpu in gone]
                log.warning("slots.missing", node=node.name, slots=slots)
                node.down |= dict.fromkeys(slots, view.last_epoch)
            for machine, gpus in layout.by_machine(gone).items():
                yield MachineLost(machine=machine, gpus=gpus)

    def _slots_back(self, layout: Layout) -> Iterator[MachineBack]:
        """Yield events for slots that reappeared, once no container of an earlier lease is left on them."""
        for node in self:
            if node.lost or not node.registered:
                continue
            here = [slot for slot, epoch in node.down.items() if slot in node.slots and node.given_back(slot, epoch)]
            gpus = [gpu for gpu in layout.gpus_of(node.name) if layout.places[gpu].slot in here]
            if here:
                log.info("slots.back", node=node.name, slots=here)
                node.down = {slot: epoch for slot, epoch in node.down.items() if slot not in here}
            for machine, found in layout.by_machine(gpus).items():
                yield MachineBack(machine=machine, gpus=found)

    def _is_tuned(self, layout: Layout, gpu: int, epoch: int) -> bool:
        place = layout.places[gpu]
        node = self._nodes.get(place.node)
        slot = None if node is None or not node.registered else node.slot_states.get(place.slot)
        return slot is not None and slot.tuned_epoch >= epoch

    # --- from the arbiter's state to orders ------------------------------------------------------------------------

    def restore(self, view: ClusterView) -> None:
        """Derive from a recovered state which machines and slots were down."""
        if self.layout is None:
            return
        for node in self:
            gpus = self.layout.gpus_of(node.name)
            down = [gpu for gpu in gpus if view.gpus.state[gpu] == GpuState.DOWN]
            if gpus and len(down) == len(gpus):
                node.lost, node.fence = True, view.last_epoch
            else:
                node.down = {self.layout.places[gpu].slot: view.last_epoch for gpu in down}

    def warn(self, gpus: Iterable[int], seconds: float) -> None:
        """Set the kill deadline of leaving GPUs, ``seconds`` from now; an earlier deadline stays."""
        at = self._system.monotonic() + max(0.0, seconds)
        for gpu in gpus:
            self.deadlines[gpu] = min(at, self.deadlines.get(gpu, at))

    def seconds_left(self, gpus: Iterable[int]) -> float | None:
        """Return the seconds until the first process on these GPUs is killed; None if not known."""
        known = [self.deadlines[gpu] for gpu in gpus if gpu in self.deadlines]
        return max(0.0, min(known) - self._system.monotonic()) if known else None

    def revocations(self, node: Node, view: ClusterView, grace: float) -> list[pb.Revocation]:
        """Return the revocations of a node's slots, due at their kill deadlines, else in ``grace`` seconds."""
        if self.layout is None:
            return []
        orders = []
        held = view.gpus
        leaving = set(np.flatnonzero(held.state == GpuState.LEAVING).tolist())
        for gone in self.deadlines.keys() - leaving:
            del self.deadlines[gone]
        for gpu in sorted(leaving):
            place = self.layout.places[gpu]
            if place.node == node.name:
                at = self.deadlines.setdefault(gpu, self._system.monotonic() + grace)
                seconds = max(0.0, at - self._system.monotonic())
                orders.append(pb.Revocation(slot=place.slot, epoch=int(held.epoch[gpu]), deadline_seconds=seconds))
        return orders + list(self._strays(node, view, self.layout))

    def tunes(self, node: Node, view: ClusterView) -> list[pb.Tune]:
        """Return the CPUs and memory (GiB) that a node must set on its slots."""
        if self.layout is None:
            return []
        places, last = self.layout.places, last_orders(node.name, node.slot_states, self.layout)
        return [
            pb.Tune(slot=places[gpu].slot, epoch=each.epoch, cpus=each.cpus, memory_gib=each.memory_gib)
            for gpu, each in sorted(settings(view, last).items())
            if places[gpu].node == node.name
        ]

    def _strays(self, node: Node, view: ClusterView, layout: Layout) -> Iterator[pb.Revocation]:
        """Yield revocations of containers whose leases are unknown or have ended."""
        held = view.gpus
        for status in node.containers:
            gpu = layout.gpu(node.name, status.slot)
            if gpu is None or held.state[gpu] == GpuState.LEAVING:
                continue
            app = int(held.app[gpu])
            if app == NONE or view.app_id(app) != status.app:
                yield pb.Revocation(slot=status.slot, epoch=status.epoch, deadline_seconds=0.0)

    def fences(self, node: Node) -> list[pb.Fence]:
        """Return the fences that a lost node, or its slots that were down, must confirm before they count as back."""
        if node.fence is not None:
            return [pb.Fence(slot=slot, epoch=node.fence) for slot in sorted(node.slots)]
        return [pb.Fence(slot=slot, epoch=epoch) for slot, epoch in sorted(node.down.items()) if slot in node.slots]
