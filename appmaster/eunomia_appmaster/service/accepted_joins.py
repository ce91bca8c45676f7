"""A join token counts as used once the launcher of the node that joined with it is accepted.

A launcher first joins, then registers. Mistakes that the operator can correct, such as an address that cannot be
reached, show up only at registration: if the join alone used up the token, each mistake would cost one. Until a node is
accepted, its token stays valid: the next machine that joins with it replaces the previous one, whose credential is
rejected from then on. So one token admits one node, however many machines try at once.
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
    """Return the records that a join changes: the node's own, and those of nodes that lose their join to it.

    Args:
        service: the arbiter's service.
        joined: the new record of the node.
        token: the join's token.
    """
    others = [] if token.reusable else service.joined.awaited(token.number)
    return [joined, *(one.superseded() for one in others if one.name != joined.name)]


def accept(service: "Service", node: str) -> list[Note]:
    """Mark a node's launcher as accepted and its token as used; returns the notes that must be journaled.

    Args:
        service: the arbiter's service.
        node: name of the node.
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
