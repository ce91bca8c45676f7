"""Checks requests that change the arbiter's records of users, nodes and tokens, before anything is changed."""

from typing import Final

from google.protobuf.message import Message

from eunomia.errors import InputError
from eunomia_appmaster.service import bounds
from eunomia_appmaster.service.refusals import no_node
from eunomia_appmaster.service.service import Service

FIRST_NODE_SECONDS: Final = 5.0
"""Seconds after the start in which calls wait for a first node, since this machine's launcher starts at that time."""


def lacks_first_node(service: Service) -> bool:
    """Return whether no node has ever joined and the time to wait for a first one has passed."""
    waits = service.system.unix_time() - service.started_at < FIRST_NODE_SECONDS
    return service.nodes.layout is None and not service.ready.is_set() and not waits


def check_change(service: Service, request: Message, what: str, *, of_machines: bool = False) -> None:
    """Check the bounds of a request, and that the arbiter can journal the change now.

    Args:
        service: the arbiter's service.
        request: the parsed request.
        what: the kind of record that it changes, for the error, such as ``users``.
        of_machines: whether the change requires that the machines have registered.

    Raises:
        InputError: a field is out of bounds, or the arbiter waits for its disk, an operator's answer or its machines.
    """
    bounds.check(request)
    if of_machines and lacks_first_node(service):
        raise no_node()
    if why := service.writing_error or (service.away if of_machines else None):
        raise InputError(f"the arbiter must decide to change {what}", value=why)
