"""The orders to a worker of a live gang: live changes, kept apart from all other orders, which ``Commands`` polls."""

from collections.abc import Callable
from typing import Any

from eunomia_appmaster.training.changes import Membership
from eunomia_appmaster.training.orders import OrderClient

TIMEOUT_SECONDS = 600.0
"""Longest time in seconds for which a worker waits for its peers, unless an order sets another."""


class ChangeOrders:
    """Reads a worker's socket, and keeps changes and other orders apart.

    Args:
        client: the client of the container's socket.
    """

    def __init__(self, client: OrderClient) -> None:
        self._client = client
        self._others: list[dict[str, Any]] = []
        self._changes: list[Membership] = []
        self.timeout_seconds = TIMEOUT_SECONDS
        self.lost: frozenset[str] = frozenset()
        """Containers that are gone although their connections may be open, such as those of a node without power."""
        self.signalled: Callable[[], bool] = lambda: False
        """Whether a signal ends this worker."""

    def poll(self) -> list[dict[str, Any]]:
        """Return the orders other than changes since the last call, oldest first."""
        self._read()
        others, self._others = self._others, []
        return others

    def changes(self) -> list[Membership]:
        """Return the changes since the last call, oldest first."""
        self._read()
        changes, self._changes = self._changes, []
        return changes

    def stops(self) -> bool:
        """Return whether an order that was not yet polled, or a signal, ends this worker."""
        return self.signalled() or any(order.get("order") == "suspend" for order in self._others)

    def say(self, kind: str, content: dict[str, Any]) -> None:
        """Send ``{kind: content}`` to the launcher."""
        self._client.say(kind, content)

    def flush(self) -> None:
        """Wait until all messages have been passed to the socket, for a short time."""
        self._client.flush()

    def _read(self) -> None:
        for order in self._client.poll():
            if "change" not in order:
                self._others.append(order)
            elif (change := _membership(order["change"])) is not None:
                self._changes.append(change)
                seconds, lost = order["change"].get("timeout_seconds"), order["change"].get("lost")
                if isinstance(seconds, int | float) and seconds > 0:
                    self.timeout_seconds = float(seconds)
                if isinstance(lost, list):
                    self.lost |= {each for each in lost if isinstance(each, str)}


def _membership(content: Any) -> Membership | None:
    """Return the change in an order; None: it is malformed, and is ignored so that the training continues."""
    if not isinstance(content, dict):
        return None
    generation, members = content.get("generation"), content.get("members")
    if not isinstance(generation, int) or not isinstance(members, list):
        return None
    if not members or not all(isinstance(each, str) for each in members) or len(set(members)) < len(members):
        return None
    return Membership(generation, tuple(members))
