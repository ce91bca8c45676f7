"""Access control: tokens of the operator, launchers, users and apps, checked before a call is processed.

Tokens of the operator, of launchers and of apps are derived from a secret in the journal, so that they stay valid after
a restart. A user's token is random, and the journal has its hash.
"""

import hmac
import secrets
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path

from eunomia.model.shapes import value
from eunomia_appmaster.node.private_files import write_private
from eunomia_appmaster.service.joined_nodes import JoinedNodes
from eunomia_appmaster.service.user_record import TOKEN_BEGIN
from eunomia_appmaster.service.users import Users


class Role(Enum):
    """The role of a caller."""

    OPERATOR = "operator"
    USER = "user"
    LAUNCHER = "launcher"
    NODE = "node"
    """The launcher of a machine that joined with a token."""
    APP = "app"


@value
class Caller:
    """A caller with a valid token; ``app`` is set for app masters, ``user`` for users, ``node`` for joined nodes."""

    role: Role
    app: str = ""
    user: str = ""
    node: str = ""
    join: int = 0
    """Number of the node's join; 0 if the caller is not a joined node."""


HEALTH = "grpc.health.v1.Health"
"""gRPC's standard health service, which needs no token."""
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
CLIENT = "eunomia.arbiter.ClientProtocol"
ADMISSION = "eunomia.launcher.NodeAdmission"
JOIN = f"/{ADMISSION}/JoinNode"
"""The method that needs no other token: it checks the join token itself, at a limited rate."""
SERVICES = {
    CLIENT: frozenset({Role.OPERATOR, Role.USER}),
    "eunomia.launcher.ResourceTracker": frozenset({Role.LAUNCHER, Role.NODE}),
    ADMISSION: frozenset({Role.NODE}),
    "eunomia.arbiter.ApplicationMasterProtocol": frozenset({Role.APP}),
    REFLECTION: frozenset({Role.OPERATOR}),
}
"""The roles that may call the methods of a service."""
USERS_METHODS = frozenset(
    {"Submit", "List", "Explain", "Cancel", "Health", "ResumeApp", "MoreTrials", "ListUsers"},
)
"""The methods of ``CLIENT`` that a user's token may call; the others are the operator's."""
SIGNED = (Role.OPERATOR, Role.LAUNCHER, Role.NODE, Role.APP)
"""Roles whose tokens are signed with the secret."""


class Tokens:
    """Creates and checks tokens of the form ``role:name:hex``, and those of users.

    An app's token is ``app:name:issue:hex``, a joined node's is ``node:name:join:hex``.

    Args:
        secret: at least 16 bytes.
        users: the arbiter's users; None if there are none.
        issue_of: returns the number of an app's present token: 0 for an app of an earlier version, None for an unknown
            app.
        joined: the nodes that have joined with a token; None if there are none.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        users: Users | None = None,
        issue_of: Callable[[str], int | None] = lambda app: 0,
        joined: JoinedNodes | None = None,
    ) -> None:
        self._secret = secret
        self._users = users
        self._issue_of = issue_of
        self._nodes = JoinedNodes({}) if joined is None else joined

    @property
    def operator(self) -> str:
        """The operator's token, which commands use."""
        return self._token(Role.OPERATOR, "")

    @property
    def launcher(self) -> str:
        """The launchers' token."""
        return self._token(Role.LAUNCHER, "")

    def app(self, app: str) -> str:
        """Return the present token of an app's master."""
        return self._token(Role.APP, _issued(app, self._issue_of(app) or 0))

    def node(self, node: str, join: int) -> str:
        """Return the credential of one join of a node."""
        return self._token(Role.NODE, f"{node}:{join}")

    def container_secret(self, node: str) -> bytes:
        """Return the secret with which a node's launcher checks container tokens; it differs for each join."""
        join = self._nodes.join_of(node)
        text = "containers" if join is None else f"containers|{node}|{join}"
        return hmac.digest(self._secret, text.encode(), "sha256")

    def caller(self, metadata: "Iterable[tuple[str, str | bytes]] | None") -> Caller | None:
        """Return the caller that this metadata identifies; None if its token is missing or not from this arbiter."""
        text = bearer(metadata)
        if text.startswith(TOKEN_BEGIN):
            user = None if self._users is None else self._users.of_token(text)
            return None if user is None else Caller(role=Role.USER, user=user.name)
        role, _, rest = text.partition(":")
        name, _, _ = rest.rpartition(":")
        for known in SIGNED:
            if known.value == role and self._is_signed(known, name, text):
                if known is Role.NODE:
                    return self._joined(name)
                app, _, _ = name.partition(":")
                issue = self._issue_of(app) if known is Role.APP else None
                if issue is not None and name != _issued(app, issue):
                    return None  # an earlier token of this app, or one of an app that had its name before
                return Caller(role=known, app=app)
        return None

    def _joined(self, name: str) -> Caller | None:
        """Return the caller of a node's credential; None if it is of an earlier join, or the node was removed."""
        node, _, join = name.rpartition(":")
        return Caller(role=Role.NODE, node=node, join=int(join)) if join == str(self._nodes.join_of(node)) else None

    def removed(self, metadata: "Iterable[tuple[str, str | bytes]] | None") -> str:
        """Return the node of a credential that is invalid because the node was removed or joined again; else empty."""
        node, join = self._node_of(metadata)
        return node if self._nodes.is_over(node, join) else ""

    def token_lost(self, metadata: "Iterable[tuple[str, str | bytes]] | None") -> int:
        """Return the number of a credential's join token if another machine has since joined with it; else 0."""
        return self._nodes.token_lost(*self._node_of(metadata))

    def _node_of(self, metadata: "Iterable[tuple[str, str | bytes]] | None") -> tuple[str, int]:
        """Return the node and the join number in a credential; empty and 0: it is not a credential."""
        text = bearer(metadata)
        role, _, rest = text.partition(":")
        name, _, _ = rest.rpartition(":")
        if role != Role.NODE.value or not self._is_signed(Role.NODE, name, text):
            return "", 0
        node, _, join = name.rpartition(":")
        return node, int(join)

    def refusal(self, metadata: "Iterable[tuple[str, str | bytes]] | None") -> str:
        """Return why the user token in this metadata is no longer valid; empty if it never was."""
        return "" if self._users is None else self._users.refusal(bearer(metadata))

    def _is_signed(self, role: Role, name: str, text: str) -> bool:
        """Return whether a token has the secret's signature; not cached, since computing it takes only 4 µs.

        The caller must look up its app or user at each call, also on an open connection.
        """
        return hmac.compare_digest(text.encode(), self._token(role, name).encode())

    def _token(self, role: Role, name: str) -> str:
        text = f"{role.value}:{name}"
        signed = hmac.digest(self._secret, text.encode(), "sha256").hex()
        return f"{text}:{signed}"


def _issued(app: str, issue: int) -> str:
    return f"{app}:{issue}" if issue else app


def bearer(metadata: "Iterable[tuple[str, str | bytes]] | None") -> str:
    """Return the token in a call's metadata; empty if it has none."""
    for name, item in metadata or ():
        if name == "authorization":
            begin, _, token = str(item).partition(" ")
            return token if begin == "Bearer" else ""
    return ""


def new_secret() -> bytes:
    """Return a secret for a new journal."""
    return secrets.token_bytes(32)


def publish_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 in a folder of mode 0700, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.parent.chmod(0o700)
    write_private(path, text.encode())
