"""``NodeAdmission``: the service by which machines join with a token and renew certificates; see launcher.proto."""

import asyncio
from typing import Any

import grpc
import structlog

from eunomia.errors import InputError
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as rpc
from eunomia_appmaster.protocol.join_text import JoinText
from eunomia_appmaster.protocol.node_names import check_name
from eunomia_appmaster.service import bounds
from eunomia_appmaster.service.accepted_joins import superseding
from eunomia_appmaster.service.join_tokens import JoinToken
from eunomia_appmaster.service.joined_nodes import JoinedNode
from eunomia_appmaster.service.layout import MACHINE_NOTE
from eunomia_appmaster.service.rates import Rate, peer_of
from eunomia_appmaster.service.refusals import header_text
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.tokens import Role, bearer
from eunomia_appmaster.service.tracker import answers
from eunomia_appmaster.service.waiting import to_its_end

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]


class NodeAdmission(rpc.NodeAdmissionServicer):
    """Handles joins of machines, and signs their certificates."""

    def __init__(self, service: Service) -> None:
        self._of = service
        self._changing = asyncio.Lock()
        self._tries = Rate("tries to join from one address", 0.5, 20.0)

    async def JoinNode(self, request: pb.JoinNodeRequest, context: Context) -> pb.JoinNodeResponse:  # noqa: N802
        """Handle a machine's join with a token."""
        await self._tries.ask(peer_of(context), asyncio.get_running_loop().time(), context)
        if why := self._of.writing_error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, why)
        caller = self._of.tokens.caller(context.invocation_metadata())
        if caller is not None and caller.role is Role.LAUNCHER:
            return await self._certify(request, context)
        async with self._changing:
            await self._token(context)
            await self._check(request, context)
            node = self._of.nodes.get(request.node)
            if node is not None and node.registered and await answers(node):
                rule = "a node must have a name of its own (--node; without it the host's)"
                why = f'{rule}, but got "{request.node}", whose launcher answers'
                await context.abort(grpc.StatusCode.ALREADY_EXISTS, why)
            token = await self._token(context)  # again: it may have become invalid during the wait
            joined = self._of.joined.next(
                request.node, _host(context), least=self._least(request.node), token=token.number
            )
            return await to_its_end(self._join(request, token, joined, context))

    async def _certify(self, request: pb.JoinNodeRequest, context: Context) -> pb.JoinNodeResponse:
        """Sign a certificate for a launcher on this machine; its node's join is created if there is none."""
        await self._check(request, context)
        async with self._changing:
            joined = self._of.joined.get(request.node)
            if joined is None:
                joined = self._of.joined.next(request.node, _host(context), least=self._least(request.node))
                try:
                    await self._of.write(joined.note())
                except InputError as error:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, header_text(str(error)))
                self._of.joined.keep(joined)
                log.info("node.certified", node=joined.name, join=joined.join)
            return await self._answer(request, joined, context)

    async def RenewNode(self, request: pb.JoinNodeRequest, context: Context) -> pb.JoinNodeResponse:  # noqa: N802
        """Sign a new certificate for a node's present join."""
        caller = self._of.tokens.caller(context.invocation_metadata())
        joined = None if caller is None else self._of.joined.get(caller.node)
        if joined is None or joined.name != request.node:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "a node may renew its own certificate alone")
            raise asyncio.CancelledError
        await self._check(request, context)
        return await self._answer(request, joined, context)

    async def _token(self, context: Context) -> JoinToken:
        """Return a call's join token; end the call if it is not valid."""
        try:
            given = JoinText.parse(bearer(context.invocation_metadata()), "authorization")
            return self._of.join_tokens.valid(given)
        except InputError as error:
            log.warning("join.refused", peer=context.peer(), why=str(error))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, header_text(str(error)))
            raise

    async def _check(self, request: pb.JoinNodeRequest, context: Context) -> None:
        try:
            bounds.check(request)
            check_name(request.node, "a node's name", "--node")
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, header_text(str(error)))

    def _least(self, node: str) -> int:
        """Return the lowest possible number of a node's next join, in case the record of earlier joins is lost.

        Each join is journaled with a step and has a number below the next step's.
        """
        notes = self._of.journal.notes(MACHINE_NOTE).values()
        layout = self._of.nodes.layout
        was_there = layout is not None and node in layout.slots
        was_there |= any(isinstance(made, dict) and made.get("node") == node for made in notes)
        return self._of.journal.last_step + 1 if was_there and not self._of.joined.knows(node) else 1

    async def _join(
        self, request: pb.JoinNodeRequest, token: JoinToken, joined: JoinedNode, context: Context
    ) -> pb.JoinNodeResponse:
        """Journal a join, and answer it; the signing request was checked before."""
        answer = await self._answer(request, joined, context)
        if why := self._used_meanwhile(token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, header_text(why))
        changed = superseding(self._of, joined, token)
        before = [self._of.joined.last(one.name) for one in changed]
        for one in changed:  # at once, so that no launcher that is superseded can be accepted meanwhile
            self._of.joined.keep(one)
        try:
            await self._of.write(*(one.note() for one in changed))
        except InputError as error:
            for one, former in zip(changed, before, strict=True):
                self._of.joined.put_back(one.name, former)
            await context.abort(grpc.StatusCode.UNAVAILABLE, header_text(str(error)))
        log.info("node.joined", node=joined.name, join=joined.join, token=token.number, address=joined.address)
        return answer

    def _used_meanwhile(self, token: JoinToken) -> str:
        """Return why a token that was valid cannot be used any more; empty if it can."""
        now = self._of.join_tokens.get(token.number)
        why = "" if now is None or now.reusable or not now.used_by else f"node {now.used_by[0]} has used it"
        return why and f"a join token must be valid, but got number {token.number}: {why}"

    async def _answer(self, request: pb.JoinNodeRequest, joined: JoinedNode, context: Context) -> pb.JoinNodeResponse:
        authority, addresses = self._of.node_authority, [joined.address] if joined.address else []
        try:
            certificate = authority.sign(request.signing_request, joined.name, joined.join, addresses)
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, header_text(str(error)))
        return pb.JoinNodeResponse(
            credential=self._of.tokens.node(joined.name, joined.join),
            join=joined.join,
            certificate=certificate,
            authority=authority.pem(),
        )


def _host(context: Context) -> str:
    """Return the IP address of a call's peer; empty if it has none."""
    peer = peer_of(context)
    kind, _, host = peer.partition(":")
    return host.replace("%5B", "").replace("%5D", "").strip("[]") if kind in ("ipv4", "ipv6") else ""
