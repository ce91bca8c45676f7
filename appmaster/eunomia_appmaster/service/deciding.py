"""Checks a request that changes what the arbiter keeps of users, nodes and tokens, before anything is changed."""

from google.protobuf.message import Message

from eunomia.errors import InputError
from eunomia_appmaster.service import bounds
from eunomia_appmaster.service.service import Service


def check_change(service: Service, request: Message, what: str, *, of_machines: bool = False) -> None:
    """Check the bounds of a request, and that the arbiter can journal the change now.

    Args:
        service: the arbiter's.
        request: as parsed.
        what: it changes, for the error: ``users``.
        of_machines: whether machines must be here for it.

    Raises:
        InputError: a field is out of its bounds, or the arbiter waits for its disk, an answer or its machines.
    """
    bounds.check(request)
    if why := service.writing_error or (service.away if of_machines else None):
        raise InputError(f"the arbiter must decide to change {what}", value=why)
