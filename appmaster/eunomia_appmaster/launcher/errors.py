"""The refusals of a launcher; each maps to one gRPC status code (server.py)."""

from eunomia.errors import EunomiaError, InputError

__all__ = [
    "ClosedEpochError",
    "InputError",
    "NotOwnError",
    "NotRegisteredError",
    "SlotBusyError",
    "UnknownContainerError",
]


class ClosedEpochError(EunomiaError):
    """The lease is over: a newer epoch of the slot was seen, or this one was revoked."""


class SlotBusyError(EunomiaError):
    """The slot's last process group has not gone yet: try again."""


class NotOwnError(EunomiaError):
    """A folder or container is not the app's own."""


class NotRegisteredError(EunomiaError):
    """The launcher has not got the arbiter's secret yet, so it cannot check tokens."""


class UnknownContainerError(EunomiaError):
    """No container of this app has that id."""
