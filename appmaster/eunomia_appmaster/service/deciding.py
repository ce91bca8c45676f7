"""Checks a request that changes what the arbiter keeps of users, nodes and tokens, before anything is changed."""

from google.protobuf.message import Message

from eunomia.errors import InputError
from eunomia_appmaster.service import bounds
from eunomia_appmaster.service.service import Service


def check_change(service: Service, request: Message, what: str) -> None:
    """Check the bounds of a request, and that the arbiter decides now.

    Args:
        service: the arbiter's.
        request: as parsed.
        what: it changes, for the error: ``users``.

    Raises:
        InputError: a field is out of its bounds, or the arbiter waits for machines, its disk or an answer.
    """
    bounds.check(request)
    if why := service.away or service.question:
        raise InputError(f"the arbiter must decide to change {what}", value=why)
