"""Wraps every call: checks the token and the message's form, and converts the arbiter's errors to answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError

from eunomia_appmaster.protocol.arbiter_pb2_grpc import ClientProtocolServicer
from eunomia_appmaster.service.join_tokens import JoinTokens
from eunomia_appmaster.service.refusals import Details, one_error
from eunomia_appmaster.service.tokens import HEALTH, JOIN, SERVICES, USERS_METHODS, Role, Tokens

log = structlog.get_logger()

Handler = Any
"""A ``grpc.RpcMethodHandler``, whose type stubs lack asyncio methods."""
Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[bytes, Context], Awaitable[Any]]
Refusal = tuple[grpc.StatusCode, str, Details]
"""A status with its text and its details."""


COMMANDS: Final = {
    "ListNodes": "eunomia nodes",
    "DrainNode": "eunomia nodes drain",
    "UndrainNode": "eunomia nodes undrain",
    "RemoveNode": "eunomia nodes remove",
    "MakeJoinToken": "eunomia nodes token",
    "ListJoinTokens": "eunomia nodes tokens",
    "RevokeJoinToken": "eunomia nodes revoke",
    "AddUser": "eunomia users add",
    "RemoveUser": "eunomia users remove",
    "SetUser": "eunomia users set",
    "NewToken": "eunomia users token",
    "Resume": "the resumption of all decisions",
}
"""The operator's commands by the gRPC method that they call, for error messages."""


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Rejects every call whose token is missing, wrong or of another role, before its message is parsed.

    Args:
        tokens: the arbiter's tokens.
        vouch: called with gRPC's peer name (the connection) for each call with a valid token.
        join_tokens: the arbiter's join tokens, so that errors can name the node that used one; None for no names.
    """

    def __init__(
        self,
        tokens: Tokens,
        vouch: Callable[[str], None] = lambda peer: None,
        join_tokens: JoinTokens | None = None,
    ) -> None:
        self._tokens = tokens
        self._join_tokens = JoinTokens({}) if join_tokens is None else join_tokens
        self._vouch = vouch
        self._reading: dict[str, Handler] = {}
        """The wrapped handler of each method, so that it is created only once."""
        self.faults = 0
        """Number of calls that ended with an unexpected exception."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Pass the call on if it is allowed; else answer it with the refusal."""
        method = str(handler_call_details.method)
        refusal = self.refusal(method, handler_call_details.invocation_metadata)
        if refusal is not None:
            return _turn_away(*refusal)
        handler = await continuation(handler_call_details)
        if handler is None:
            return _turn_away(*_unknown(method))
        if handler.unary_unary is None:
            return handler
        reading = self._reading.get(method)
        if reading is None:
            reading = self._reading[method] = self.reading(method, handler)
        return reading

    def refusal(self, method: str, metadata: Any) -> Refusal | None:
        """Return why a caller may not call a method; None if it may.

        For users, the text is in the details as well, so that a client shows it in place of its own.
        """
        service = _service(method)
        if service == HEALTH or method == JOIN:
            return None
        caller = self._tokens.caller(metadata)
        if caller is None and (number := self._tokens.token_lost(metadata)):
            token = self._join_tokens.get(number)
            why = (token and token.taken) or "another machine has joined with it"
            rule = "a join token must be valid (`eunomia nodes token` makes another)"
            return grpc.StatusCode.ABORTED, f"{rule}, but got number {number}: {why}", ()
        if caller is None and (removed := self._tokens.removed(metadata)):
            why = "a node's credential must be of its present join, but got one of a join that is over: "
            why += f'"{removed}" was removed, or has joined again'
            return grpc.StatusCode.PERMISSION_DENIED, why, ()
        if caller is None:
            why = self._tokens.refusal(metadata)
            if why:
                return grpc.StatusCode.UNAUTHENTICATED, why, one_error(why)
            return grpc.StatusCode.UNAUTHENTICATED, "a call must carry the arbiter's token, and this does not", ()
        if service not in SERVICES:
            return _unknown(method)
        if caller.role not in SERVICES[service]:
            return (
                grpc.StatusCode.PERMISSION_DENIED,
                f"a token of role {caller.role.value} must call its own services",
                (),
            )
        name = method.rpartition("/")[2]
        if caller.role is Role.USER and name not in USERS_METHODS and hasattr(ClientProtocolServicer, name):
            what = COMMANDS.get(name, name)
            why = f"{what} must be called with the operator's token, but got that of user {caller.user}"
            return grpc.StatusCode.PERMISSION_DENIED, why, one_error(why)
        return None

    def reading(self, method: str, handler: Handler) -> Handler:
        """Return a handler that answers unreadable messages, and unexpected exceptions, with an error of one line."""
        read, needs_token = self.reader(method, handler), _service(method) != HEALTH and method != JOIN

        async def call(content: bytes, context: Context) -> Any:
            if needs_token:
                self._vouch(context.peer())
            return await read(content, context)

        return grpc.unary_unary_rpc_method_handler(call, None, handler.response_serializer)

    def reader(self, method: str, handler: Handler) -> Method:
        """Return the handler's method, which takes the bytes of a message."""
        name = method.rpartition("/")[2]

        async def call(content: bytes, context: Context) -> Any:
            try:
                request = handler.request_deserializer(content)
            except DecodeError:
                rule = f"a message must be readable as the request of {name}, but got {len(content)} bytes that are not"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, rule)
            try:
                return await handler.unary_unary(request, context)
            except grpc.aio.AbortError:
                raise
            except grpc.aio.InternalError as error:  # nothing can be sent: the caller has gone, or this process ends
                log.info("caller.gone", method=name, why=type(error).__name__)
                raise asyncio.CancelledError from None  # as gRPC itself ends a call whose caller has gone
            except Exception as error:
                self.faults += 1
                log.exception("call.failed", method=name)
                words = f"the arbiter failed to answer {name} ({type(error).__name__}); its log says more"
                await context.abort(grpc.StatusCode.INTERNAL, words)

        return call


def _service(method: str) -> str:
    return method.strip("/").partition("/")[0]


def _unknown(method: str) -> Refusal:
    return grpc.StatusCode.UNIMPLEMENTED, f'a method must be one of the arbiter\'s, but got "{method[:200]}"', ()


def _turn_away(code: grpc.StatusCode, why: str, details: Details) -> Handler:
    async def refuse(_: object, context: Context) -> object:
        await context.abort(code, why, details)
        return None

    # A stream handler, so that the refusal does not wait for a message, which a silent caller never sends.
    return grpc.stream_unary_rpc_method_handler(refuse)
