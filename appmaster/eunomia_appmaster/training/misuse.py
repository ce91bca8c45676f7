"""Errors of a script in its use of the training helper, which no restart cures: its job fails at once."""

import atexit
import sys
from typing import Any, Protocol

from eunomia.errors import InputError


class MisuseError(InputError):
    """A wrong use of the training helper: the script fails in the same way after each restart."""


class Sayer(Protocol):
    """A worker's connection to its launcher; a protocol."""

    def say(self, kind: str, content: dict[str, Any]) -> None:
        """Send ``{kind: content}``."""
        ...

    def flush(self) -> None:
        """Wait until all messages have been passed on, for a short time."""
        ...


def report_misuse(orders: Sayer) -> None:
    """Report at this process's end that a ``MisuseError`` has ended its script, if so.

    The interpreter keeps the exception that has ended a script, whatever prints it.
    """

    def report() -> None:
        error = getattr(sys, "last_value", None)
        if isinstance(error, MisuseError):
            orders.say("misused", {"why": str(error)})
            orders.flush()

    atexit.register(report)
