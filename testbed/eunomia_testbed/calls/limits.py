"""How long a plugin's call may take, and the error of a run that ends because one took longer."""

from typing import Final

from eunomia.errors import EunomiaError
from eunomia.model.shapes import value
from eunomia.units import format_duration
from eunomia_testbed.calls.clock import CPU, WALL
from eunomia_testbed.calls.page import CallPage


@value
class CallLimits:
    """Limits on the time of one call of a plugin."""

    cpu_seconds: float = 60.0
    """Seconds of CPU time of the process."""
    wall_seconds: float = 600.0
    """Seconds, for a call that sleeps or waits."""


DEFAULT_LIMITS: Final = CallLimits()


class CallTooLongError(EunomiaError):
    """A plugin's call took longer than its limit, so its policy's runs end (exit code 1)."""

    exit_code = 1


def too_long(limits: CallLimits, exceeded: str, page: CallPage, *, line: str = "") -> CallTooLongError:
    """Return the error of the current call, which exceeded a limit.

    Args:
        limits: the limits.
        exceeded: the limit that the call exceeded, ``CPU`` or ``WALL``.
        page: names the call.
        line: the line of the plugin's file; empty: unknown.
    """
    plugin, what = page.call()
    value = f"no answer from {plugin} ({what}{line})"
    return CallTooLongError(rules_of(limits)[exceeded], value=value, place=page.place())


def rules_of(limits: CallLimits) -> dict[str, str]:
    """Return the rule that an error states, by limit."""
    rule = "a call of a plugin must take at most"
    return {
        CPU: f"{rule} {format_duration(limits.cpu_seconds)} of CPU time (--call-cpu)",
        WALL: f"{rule} {format_duration(limits.wall_seconds)} (--call-wall)",
    }
