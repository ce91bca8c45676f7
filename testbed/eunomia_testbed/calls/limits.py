"""The time limits of a plugin's call, and the error that ends a run in which a call exceeds them."""

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
    """Limit on the CPU seconds of the process during the call."""
    wall_seconds: float = 600.0
    """Limit in seconds of wall time, for a call that sleeps or waits."""


DEFAULT_LIMITS: Final = CallLimits()


class CallTooLongError(EunomiaError):
    """A plugin's call took longer than its limit, so its policy's runs end (exit code 1)."""

    exit_code = 1


def too_long(limits: CallLimits, exceeded: str, page: CallPage, *, line: str = "") -> CallTooLongError:
    """Return the error of the current call, which exceeded a limit.

    Args:
        limits: the limits.
        exceeded: the limit that the call exceeded, ``CPU`` or ``WALL``.
        page: the page on which the current call is recorded.
        line: file and line in the plugin, such as `` at half.py:12``; empty: unknown.
    """
    plugin, what = page.call()
    value = f"no answer from {plugin} ({what}{line})"
    return CallTooLongError(rules_of(limits)[exceeded], value=value, place=page.place())


def rules_of(limits: CallLimits) -> dict[str, str]:
    """Return by limit (``CPU``, ``WALL``) the rule that an error states."""
    rule = "a call of a plugin must take at most"
    return {
        CPU: f"{rule} {format_duration(limits.cpu_seconds)} of CPU time (--call-cpu)",
        WALL: f"{rule} {format_duration(limits.wall_seconds)} (--call-wall)",
    }
