"""Tokens that the arbiter issues and a launcher checks, so that an app can use only its own slots (launcher.proto)."""

import hashlib
import hmac

from eunomia.errors import EunomiaError


class WrongTokenError(EunomiaError):
    """A token does not match the requested lease or app."""


def container_token(secret: bytes, app: str, node: str, slot: int, epoch: int, login: str = "") -> str:
    """Sign one lease: return hex digits that let ``app`` start containers on ``slot`` of ``node`` in ``epoch``.

    Args:
        secret: shared by the arbiter and the node.
        app: the lease's holder.
        node: name of the slot's node.
        slot: number of the slot on the node.
        epoch: the lease's epoch.
        login: the account under which the containers run; empty: the launcher's own.
    """
    return _sign(secret, f"{app}|{node}|{slot}|{epoch}{f'|{login}' if login else ''}")


def node_token(secret: bytes, app: str, node: str) -> str:
    """Sign one app's access to one node: return hex digits that let it stop, order and watch its containers there."""
    return _sign(secret, f"{app}|{node}")


def check_container_token(
    token: str, secret: bytes, app: str, node: str, slot: int, epoch: int, login: str = ""
) -> None:
    """Check that a token is the one of ``container_token`` for the same lease and account.

    Raises:
        WrongTokenError: the token is another one.
    """
    if not hmac.compare_digest(token.encode(), container_token(secret, app, node, slot, epoch, login).encode()):
        under = f", login {login}" if login else ""
        raise WrongTokenError(
            f"a container token must be signed for app {app}, node {node}, slot {slot}, epoch {epoch}{under}",
            value="another one" if token else "none",
        )


def check_node_token(token: str, secret: bytes, app: str, node: str) -> None:
    """Check that a token is the one of ``node_token`` for the same app and node.

    Raises:
        WrongTokenError: the token is another one.
    """
    if not hmac.compare_digest(token.encode(), node_token(secret, app, node).encode()):
        raise WrongTokenError(
            f"a node token must be signed for app {app} and node {node}", value="another one" if token else "none"
        )


def _sign(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
