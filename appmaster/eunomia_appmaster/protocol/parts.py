"""Parts of messages that outlive the message in which they came."""

from typing import TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


def detached(part: M) -> M:
    """Return a copy of a part of a message.

    A part keeps the memory of the whole message (measured: 5.4 kB of a small heartbeat, and 0.6 kB for the copy of a
    container's status in it), so what is kept for longer than a call is a copy.
    """
    copy = type(part)()
    copy.CopyFrom(part)
    return copy
