"""Handles a node that registers with more slots or other slot types: the cluster's machines change accordingly."""

import structlog

from eunomia.contract.events import Event, MachineDraining, MachineJoined, MachineLeft, MachineLost
from eunomia.journal.values import Note
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.joining import check_epochs
from eunomia_appmaster.service.layout import Change, Layout
from eunomia_appmaster.service.nodes import Node
from eunomia_appmaster.service.service import Service

log = structlog.get_logger()


async def change(service: Service, request: pb.RegisterNodeRequest) -> Node:
    """Make machines of a node leave and join according to its registration; register it once this is journaled.

    Slots that join are down until a fence is confirmed there, since a lease on a machine that left may have used them.
    While the arbiter makes no decisions, the node is registered with its unchanged slots.

    Args:
        service: the arbiter's service, whose cluster has the node.
        request: the node's registration, within bounds.

    Raises:
        InputError: the policy does not support the changed cluster, or the node has seen orders of another arbiter;
            nothing was changed.
    """
    if not service.decides:
        return _wait(service, request)
    async with service.driver.lock:
        before = service.nodes.layout
        if before is None or (made := before.change(request)) is None:
            return service.nodes.add(request)
        epoch = int(service.view.last_epoch)
        check_epochs(request, epoch)
        grown, after = _suited(service, before, made, request.node)
        # A cluster has a machine at all times: where none stays, the former ones leave after the others have joined.
        at_once = len(before.cluster.left) + len(made.left) < len(before.cluster.machines)
        names = [before.cluster.machines[number].name for number in made.left]
        leave: list[Event] = [MachineLeft(machine=name) for name in names]
        left_notes = [service.upkeep.left_note(before, number) for number in made.left]
        joins = [one.event for one in made.joined]
        drains = service.upkeep.order(request.node).drains
        service.nodes.move_to(after if at_once else grown)  # before the step, whose decision depends on it
        _fence(service, request.node, [slot for one in made.joined for slot in one.slots], epoch)
        notes = [one.note(epoch) for one in made.joined]
        if at_once:
            service.driver.put([*leave, *_joining(joins, drains=drains)], [*left_notes, *notes])
        else:
            service.driver.put([*_joining(joins, drains=drains), *_closing(names)], notes)
    await service.driver.fold([])
    if not at_once:
        await _leave(service, leave, left_notes)
    node = service.nodes.add(request)
    log.info("node.changed", node=node.name, left=names, joined=[event.machine for event in joins])
    return node


async def _leave(service: Service, events: list[Event], notes: list[Note]) -> None:
    async with service.driver.lock:
        service.driver.put(events, notes)
    await service.driver.fold([])


def _wait(service: Service, request: pb.RegisterNodeRequest) -> Node:
    """Register a node with its unchanged slots; it must register again once the arbiter makes decisions.

    Raises:
        InputError: the policy does not support the changed cluster.
    """
    layout = service.nodes.layout
    if layout is not None and (made := layout.change(request)) is not None:
        _suited(service, layout, made, request.node)
        request = layout.known_part(request)
    node = service.nodes.add(request)
    node.unlike = True
    return node


def _suited(service: Service, before: Layout, made: Change, node: str) -> tuple[Layout, Layout]:
    """Return the layout after machines have joined, and the layout after others have left as well.

    Raises:
        InputError: the policy does not support the changed cluster.
    """
    grown = before.with_machines(made.joined)
    after = grown.without({*grown.cluster.left, *made.left})
    service.profile.stages(after.cluster, place=f"node {node}")
    return grown, after


def _joining(joins: list[MachineJoined], *, drains: bool) -> list[Event]:
    """Return the events for joining machines, whose slots are down until a fence is confirmed."""
    events: list[Event] = [*joins, *(MachineLost(machine=event.machine) for event in joins)]
    return events + [MachineDraining(machine=event.machine) for event in joins if drains]


def _closing(names: list[str]) -> list[Event]:
    """Return the events that keep machines that are about to leave from getting leases."""
    return [*(MachineLost(machine=name) for name in names), *(MachineDraining(machine=name) for name in names)]


def _fence(service: Service, name: str, slots: list[int], epoch: int) -> None:
    node = service.nodes.get(name)
    if node is not None and node.lost:
        node.fence = epoch
    elif node is not None:
        node.down |= dict.fromkeys(slots, epoch)
