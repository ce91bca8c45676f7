"""Where users are kept apart, a login has one number on all nodes: files on the shared storage belong to numbers."""

from collections.abc import Iterable

from eunomia.errors import InputError
from eunomia_appmaster.node.accounts import uid_of
from eunomia_appmaster.protocol import launcher_pb2 as pb


def check_uids(request: pb.RegisterNodeRequest, logins: Iterable[str]) -> None:
    """Refuse a node on which a login has another number than on this machine.

    Args:
        request: the node's registration; a login that it was not asked for is passed over.
        logins: of the arbiter's users.

    Raises:
        InputError: with the login and both numbers.
    """
    for login in sorted(set(logins)):
        here, there = uid_of(login), request.uids.get(login)
        if there not in (None, here):
            rule = "a login of a user must have one number on all nodes (eunomia users add --login)"
            numbers = f"{here or 'no account'} on the arbiter's machine, {there or 'no account'} on {request.node}"
            value = f"{login}: {numbers}"
            raise InputError(rule, value=value, place=request.node)
