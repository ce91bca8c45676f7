"""The calls of ``ClientProtocol`` about join tokens."""

import dataclasses
from typing import Any

import grpc
import structlog

from eunomia.errors import InputError
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.deciding import check_change
from eunomia_appmaster.service.join_tokens import DEFAULT_LIFE_SECONDS, JoinToken
from eunomia_appmaster.service.refusals import refuse
from eunomia_appmaster.service.service import Service

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]


class JoinCalls:
    """Creates, lists and revokes join tokens, for the operator.

    Args:
        service: the arbiter's service.
    """

    def __init__(self, service: Service) -> None:
        self._joins = service

    async def MakeJoinToken(  # noqa: N802
        self, request: pb.MakeJoinTokenRequest, context: Context
    ) -> pb.JoinTokenMade:
        """Create a token with which a machine can join."""
        service = self._joins
        await self._may_change(request, context)
        life = request.ends_in_seconds if request.HasField("ends_in_seconds") else DEFAULT_LIFE_SECONDS
        certificates = service.settings.certificates
        authority = b"" if certificates is None else certificates.ca.read_bytes()
        token, text = service.join_tokens.made(life_seconds=life, reusable=request.reusable, authority=authority)
        service.join_tokens.keep(token)  # reserves its number; its text is returned once it is journaled
        await self._journal_token(token, context)
        log.info("join_token.made", number=token.number, reusable=token.reusable)
        return pb.JoinTokenMade(token=self._join_message(token), text=text)

    async def ListJoinTokens(  # noqa: N802
        self, request: pb.ListJoinTokensRequest, context: Context
    ) -> pb.ListJoinTokensResponse:
        """List all join tokens."""
        return pb.ListJoinTokensResponse(tokens=[self._join_message(token) for token in self._joins.join_tokens])

    async def RevokeJoinToken(  # noqa: N802
        self, request: pb.RevokeJoinTokenRequest, context: Context
    ) -> pb.JoinToken:
        """Revoke a join token."""
        service = self._joins
        await self._may_change(request, context)
        try:
            revoked = dataclasses.replace(service.join_tokens.named(request.number), revoked=True)
        except InputError as error:
            await refuse(context, error)
            raise
        await self._journal_token(revoked, context)
        service.join_tokens.keep(revoked)
        log.info("join_token.revoked", number=revoked.number)
        return self._join_message(revoked)

    async def _may_change(self, request: pb.MakeJoinTokenRequest | pb.RevokeJoinTokenRequest, context: Context) -> None:
        try:
            check_change(self._joins, request, "join tokens")
        except InputError as error:
            await refuse(context, error)

    async def _journal_token(self, token: JoinToken, context: Context) -> None:
        try:
            await self._joins.write(token.note())
        except InputError as error:
            await refuse(context, error)

    def _join_message(self, token: JoinToken) -> pb.JoinToken:
        left = max(0.0, token.ends_at - self._joins.system.unix_time())
        return pb.JoinToken(
            number=token.number,
            ends_in_seconds=left,
            reusable=token.reusable,
            used_by=token.used_by,
            members=self._joins.joined.members(token.number, token.used_by),
            revoked=token.revoked,
        )
