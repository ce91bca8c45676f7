"""Tokens that the arbiter issues and a launcher checks, so that an app reaches only its own (launcher.proto)."""

import hashlib
import hmac

from eunomia.errors import EunomiaError


class WrongTokenError(EunomiaError):
    """A token does not match the requested lease or app."""


def container_token(secret: bytes, app: str, node: str, slot: int, epoch: int) -> str:
    """Sign one lease: hex digits that let ``app`` start containers on ``slot`` of ``node`` in ``epoch``."""
    return _sign(secret, f"{app}|{node}|{slot}|{epoch}")


def node_token(secret: bytes, app: str, node: str) -> str:
    """Sign one app's access to one node: hex digits that let it stop, order and watch its containers there."""
    return _sign(secret, f"{app}|{node}")


def check_container_token(token: str, secret: bytes, app: str, node: str, slot: int, epoch: int) -> None:
    """Raise ``WrongTokenError`` unless ``token`` is the lease's own."""
    if not hmac.compare_digest(token.encode(), container_token(secret, app, node, slot, epoch).encode()):
        raise WrongTokenError(
            f"a container token must be signed for app {app}, node {node}, slot {slot}, epoch {epoch}",
            value="another one" if token else "none",
        )


def check_node_token(token: str, secret: bytes, app: str, node: str) -> None:
    """Raise ``WrongTokenError`` unless ``token`` is the app's own on this node."""
    if not hmac.compare_digest(token.encode(), node_token(secret, app, node).encode()):
        raise WrongTokenError(
            f"a node token must be signed for app {app} and node {node}", value="another one" if token else "none"
        )


def _sign(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
