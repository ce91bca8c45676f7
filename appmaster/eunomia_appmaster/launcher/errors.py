"""The refusals of a launcher; each maps to one gRPC status code (server.py)."""

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.node.lenient_output import FULL

__all__ = [
    "ClosedEpochError",
    "InputError",
    "LacksError",
    "LeaseEndedError",
    "NoRoomError",
    "NotOwnError",
    "NotRegisteredError",
    "RemovedError",
    "SlotBusyError",
    "SupersededError",
    "UnknownContainerError",
    "not_written",
]


class ClosedEpochError(EunomiaError):
    """The lease is over: a newer epoch of the slot was seen, or this one was revoked."""


class SlotBusyError(EunomiaError):
    """The slot's last process group has not gone yet: try again."""


class LeaseEndedError(EunomiaError):
    """The arbiter has not answered the node for the length of its lease: try again."""


class NoRoomError(EunomiaError):
    """The disk takes nothing more: try again."""


def not_written(rule: str, error: OSError) -> EunomiaError:
    """Return the refusal for a file that could not be written; on a full disk the same call may be made again."""
    kind = NoRoomError if error.errno in FULL else EunomiaError
    return kind(rule, value=str(error))


class NotOwnError(EunomiaError):
    """A folder or container is not the app's own."""


class RemovedError(InputError):
    """The operator has removed this node: the launcher ends its containers, then itself."""


class SupersededError(RemovedError):
    """Another machine has joined with this one's token before its launcher was accepted: it never was a node."""


class LacksError(InputError):
    """The node does not have what a command needs; another one may."""


class NotRegisteredError(EunomiaError):
    """The launcher has not got the arbiter's secret yet, so it cannot check tokens."""


class UnknownContainerError(EunomiaError):
    """No container of this app has that id."""
