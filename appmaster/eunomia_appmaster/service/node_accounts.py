"""Checks that a login has the same user id on all nodes, since files on the shared storage belong to ids."""

from collections.abc import Iterable

from eunomia.errors import InputError
from eunomia_appmaster.node.accounts import uid_of
from eunomia_appmaster.protocol import launcher_pb2 as pb


def check_uids(request: pb.RegisterNodeRequest, logins: Iterable[str]) -> None:
    """Check that logins have the same user ids on a node as on this machine.

    Args:
        request: the node's registration; logins in it that are not in ``logins`` are ignored.
        logins: the logins of the arbiter's users.

    Raises:
        InputError: an id differs; the message has the login and both ids.
    """
    for login in sorted(set(logins)):
        here, there = uid_of(login), request.uids.get(login)
        if there not in (None, here):
            rule = "a login of a user must have one number on all nodes (eunomia users add --login)"
            numbers = f"{here or 'no account'} on the arbiter's machine, {there or 'no account'} on {request.node}"
            value = f"{login}: {numbers}"
            raise InputError(rule, value=value, place=request.node)
