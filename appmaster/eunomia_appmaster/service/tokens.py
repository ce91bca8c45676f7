"""Who may call what: the operator's token, the launcher's, and one a app, checked before a call is looked at.

Tokens follow from one secret that the journal keeps, so that those handed out before a restart stay good.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from pathlib import Path

import grpc

from eunomia.shapes import value

Handler = Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[object, object]"]]


class Role(Enum):
    """Who calls."""

    OPERATOR = "operator"
    LAUNCHER = "launcher"
    APP = "app"


@value
class Caller:
    """A caller whose token was right; ``app`` is set for app masters."""

    role: Role
    app: str = ""


SERVICES = {
    "eunomia.arbiter.ClientProtocol": frozenset({Role.OPERATOR}),
    "eunomia.launcher.ResourceTracker": frozenset({Role.LAUNCHER}),
    "eunomia.arbiter.ApplicationMasterProtocol": frozenset({Role.APP}),
}
"""Which role may call the methods of a service."""


class Tokens:
    """Makes and checks tokens of the form ``role:name:hex``.

    Args:
        secret: at least 16 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @property
    def operator(self) -> str:
        """The token of commands."""
        return self._token(Role.OPERATOR, "")

    @property
    def launcher(self) -> str:
        """The token of launchers."""
        return self._token(Role.LAUNCHER, "")

    def app(self, app: str) -> str:
        """The token of one app's master."""
        return self._token(Role.APP, app)

    @property
    def container_secret(self) -> bytes:
        """What launchers check container tokens with."""
        return hmac.new(self._secret, b"containers", hashlib.sha256).digest()

    def caller(self, metadata: "Iterable[tuple[str, str | bytes]] | None") -> Caller | None:
        """Who sent this metadata; None: nobody whom this arbiter gave a token."""
        text = next((str(item) for name, item in metadata or () if name == "authorization"), "")
        role, _, rest = text.removeprefix("Bearer ").partition(":")
        name, _, _ = rest.partition(":")
        for known in Role:
            if known.value == role and hmac.compare_digest(
                text.encode(), f"Bearer {self._token(known, name)}".encode()
            ):
                return Caller(role=known, app=name)
        return None

    def _token(self, role: Role, name: str) -> str:
        text = f"{role.value}:{name}"
        return f"{text}:{hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()}"


def new_secret() -> bytes:
    """A secret for a new journal."""
    return secrets.token_bytes(32)


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 in a folder of mode 0700, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.parent.chmod(0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Turns away every call whose token is missing, wrong or of another role; nothing of it is looked at."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def intercept_service(
        self, continuation: Handler, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[object, object]":
        """Let the call through, or answer in its place."""
        caller = self._tokens.caller(handler_call_details.invocation_metadata)
        service = handler_call_details.method.strip("/").partition("/")[0]
        if caller is None:
            return _turn_away(
                grpc.StatusCode.UNAUTHENTICATED, "a call must carry the arbiter's token, and this does not"
            )
        if caller.role not in SERVICES.get(service, frozenset()):
            return _turn_away(
                grpc.StatusCode.PERMISSION_DENIED, f"the token of an {caller.role.value} is of no use here"
            )
        return await continuation(handler_call_details)


def _turn_away(code: grpc.StatusCode, why: str) -> "grpc.RpcMethodHandler[object, object]":
    async def refuse(_: object, context: "grpc.aio.ServicerContext[object, object]") -> object:
        await context.abort(code, why)
        return None

    return grpc.unary_unary_rpc_method_handler(refuse)
