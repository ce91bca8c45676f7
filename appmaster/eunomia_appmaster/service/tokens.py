"""Access control: the operator's token, the launchers', and one for each app, checked before a call is processed.

Tokens follow from one secret in the journal, so that tokens issued before a restart stay valid.
"""

import hmac
import os
import secrets
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from eunomia.model.shapes import value


class Role(Enum):
    """The role of a caller."""

    OPERATOR = "operator"
    LAUNCHER = "launcher"
    APP = "app"


@value
class Caller:
    """A caller with a valid token; ``app`` is set for app masters."""

    role: Role
    app: str = ""


HEALTH = "grpc.health.v1.Health"
"""gRPC's standard health service, which needs no token."""
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
SERVICES = {
    "eunomia.arbiter.ClientProtocol": frozenset({Role.OPERATOR}),
    "eunomia.launcher.ResourceTracker": frozenset({Role.LAUNCHER}),
    "eunomia.arbiter.ApplicationMasterProtocol": frozenset({Role.APP}),
    REFLECTION: frozenset({Role.OPERATOR}),
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
        """Return the token of one app's master."""
        return self._token(Role.APP, app)

    @property
    def container_secret(self) -> bytes:
        """Returns the secret with which launchers check container tokens."""
        return hmac.digest(self._secret, b"containers", "sha256")

    def caller(self, metadata: "Iterable[tuple[str, str | bytes]] | None") -> Caller | None:
        """Return the sender of this metadata; None if its token is missing or not from this arbiter."""
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
        signed = hmac.digest(self._secret, text.encode(), "sha256").hex()
        return f"{text}:{signed}"


def new_secret() -> bytes:
    """Return a secret for a new journal."""
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
