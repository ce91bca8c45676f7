"""When a join token counts as used: once the launcher of the node that joined with it is accepted.

A launcher joins first, and registers then. Mistakes that the operator can correct, such as an address that does not
answer, are found at registration, so a token that the join alone used up would be lost with each mistake. Until a node
is accepted, its token stays valid: the next machine that joins with it replaces the previous one, whose credential is
refused from then on. So one token makes one node, however many machines try at once.
"""

import sqlite3
from typing import TYPE_CHECKING

from eunomia.errors import InputError
from eunomia.journal.values import Note
from eunomia_appmaster.service.join_tokens import JoinToken
from eunomia_appmaster.service.joined_nodes import JoinedNode

if TYPE_CHECKING:
    from eunomia_appmaster.service.service import Service


def superseding(service: "Service", joined: JoinedNode, token: JoinToken) -> list[JoinedNode]:
    """Return the records that a join changes: the node, and nodes that lose their join because of the same token.

    Args:
        service: the arbiter's service.
        joined: the new record of the node.
        token: the token of the join.
    """
    others = [] if token.reusable else service.joined.awaited(token.number)
    return [joined, *(one.superseded() for one in others if one.name != joined.name)]


def accept(service: "Service", node: str) -> list[Note]:
    """Mark a node's launcher as accepted and its token as used; returns the notes that must be journaled.

    Args:
        service: the arbiter's service.
        node: its name.
    """
    joined = service.joined.get(node)
    if joined is None or not joined.token:
        return []
    accepted, token = joined.accepted(), service.join_tokens.get(joined.token)
    service.joined.keep(accepted)
    if token is None:
        return [accepted.note()]
    used = token.used(node)
    service.join_tokens.keep(used)
    return [accepted.note(), used.note()]


def accept_first(service: "Service", node: str) -> None:
    """Accept the launcher of a cluster's first node, before the arbiter makes steps.

    Raises:
        InputError: the disk refuses the notes; nothing was changed.
    """
    joined, before = service.joined.get(node), [*service.join_tokens]
    if not (notes := accept(service, node)):
        return
    try:
        service.journal.note(*notes)
    except (sqlite3.Error, OSError) as error:
        if joined is not None:
            service.joined.keep(joined)
        for token in before:
            service.join_tokens.keep(token)
        raise InputError("the arbiter must be able to write its journal", value=str(error)) from error
