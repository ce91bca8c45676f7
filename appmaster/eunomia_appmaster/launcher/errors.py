"""The errors with which a launcher refuses calls; each maps to one gRPC status code (server.py)."""

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
    "OldAttemptError",
    "RemovedError",
    "SlotBusyError",
    "SupersededError",
    "UnknownContainerError",
    "not_written",
]


class ClosedEpochError(EunomiaError):
    """The lease has ended: a newer epoch of the slot was seen, or this one was revoked."""


class OldAttemptError(EunomiaError):
    """The order is of an earlier attempt of the app's master than one that the launcher has seen."""


class SlotBusyError(EunomiaError):
    """The processes of the slot's previous container have not ended yet; the caller should retry."""


class LeaseEndedError(EunomiaError):
    """The node's lease has ended because the arbiter did not answer in time; the caller should retry."""


class NoRoomError(EunomiaError):
    """The disk is full; the caller should retry."""


def not_written(rule: str, error: OSError) -> EunomiaError:
    """Return the error for a file that could not be written; on a full disk, ``NoRoomError``, so that callers retry."""
    kind = NoRoomError if error.errno in FULL else EunomiaError
    return kind(rule, value=str(error))


class NotOwnError(EunomiaError):
    """The app named a folder or container that does not belong to it."""


class RemovedError(InputError):
    """The operator has removed this node: the launcher ends its containers, then exits."""


class SupersededError(RemovedError):
    """Another machine joined with the same token before this launcher was accepted: this one never was a node."""


class LacksError(InputError):
    """The node lacks a prerequisite of a command; another node may have it."""


class NotRegisteredError(EunomiaError):
    """The launcher has not received the arbiter's secret yet, so it cannot check tokens."""


class UnknownContainerError(EunomiaError):
    """The app has no container with that id."""
