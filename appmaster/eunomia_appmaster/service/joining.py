"""Adds a node to the cluster of a live arbiter: one event per machine, journaled with the note of its slots."""

from collections.abc import Callable

import structlog

from eunomia.contract.events import Event, MachineLost
from eunomia.errors import InputError
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.versions import PROTOCOL, PYTHON, VERSION
from eunomia_appmaster.service.accepted_joins import accept
from eunomia_appmaster.service.nodes import Node
from eunomia_appmaster.service.service import Service

log = structlog.get_logger()


async def join(service: Service, request: pb.RegisterNodeRequest, belongs: Callable[[], bool] = lambda: True) -> Node:
    """Add the machines of a node that the cluster does not have, and register it once they are journaled.

    Machines with running processes are down until a fence is confirmed, since these processes belong to no lease.

    Args:
        service: the arbiter's service, which makes decisions.
        request: the node's registration, within bounds.
        belongs: returns whether the node's credential is still valid.

    Raises:
        InputError: the policy does not support the larger cluster, the node has seen orders of another arbiter, or
            another machine has joined with its token meanwhile; nothing was changed.
    """
    async with service.driver.lock:
        check_belongs(belongs, request.node)
        if service.nodes.layout is None:
            raise InputError("a cluster must have a first machine before another joins", value="none")
        layout, machines = service.nodes.layout.joined(request)
        epoch = int(service.view.last_epoch)
        check_epochs(request, epoch)
        service.profile.stages(layout.cluster, place=f"node {request.node}")
        service.nodes.leases.begin()
        service.nodes.move_to(layout)  # before the step, whose decision may grant its slots
        dirty = _is_dirty(request)
        events: list[Event] = [one.event for one in machines]
        events += [MachineLost(machine=one.machine.name) for one in machines] if dirty else []
        service.driver.put(events, [*(one.note(epoch) for one in machines), *accept(service, request.node)])
    await service.driver.fold([])
    node = service.nodes.add(request)
    if dirty:
        node.lost, node.fence = True, epoch
    log.info("node.joined", node=node.name, machines=[one.machine.name for one in machines], slots=len(request.slots))
    return node


def check_belongs(belongs: Callable[[], bool], node: str) -> None:
    """Check that a node's credential was not replaced while it registered.

    Args:
        belongs: returns whether the credential is still valid.
        node: name of the node.

    Raises:
        InputError: the credential was replaced.
    """
    if not belongs():
        rule = "a node must join with a token that no other machine joins with (`eunomia nodes token` makes another)"
        raise InputError(rule, value="a token with which another machine has joined meanwhile", place=node)


def check_versions(request: pb.RegisterNodeRequest) -> None:
    """Check that a node has the arbiter's versions of Eunomia, Python and the protocol.

    Raises:
        InputError: a version differs; the message has both.
    """
    theirs = (request.version or "an earlier one", request.python or "?", request.protocol)
    if theirs != (VERSION, PYTHON, PROTOCOL):
        rule = f"a node must have the arbiter's Eunomia {VERSION}, Python {PYTHON} and protocol {PROTOCOL}"
        version, python, protocol = theirs
        value = f"Eunomia {version}, Python {python} and protocol {protocol}"
        raise InputError(rule, value=value, place=request.node)


def _is_dirty(request: pb.RegisterNodeRequest) -> bool:
    """Return whether processes may run on the node's slots."""
    runs = any(status.state != pb.COMPLETED for status in request.containers)
    return runs or any(state.busy for state in request.slot_states)


def check_epochs(request: pb.RegisterNodeRequest, last: int) -> None:
    """Check that a node's folder has not served another arbiter, whose later epochs would make it refuse orders.

    Raises:
        InputError: the node has seen a later epoch than this arbiter's last.
    """
    seen = max((max(state.highest_epoch, state.closed_epoch) for state in request.slot_states), default=0)
    if seen > last:
        rule = f"a node that joins must have seen no order of another arbiter (the last epoch here is {last})"
        raise InputError(f"{rule}: give it a --node-dir of its own", value=str(seen), place=request.node)
