"""The texts of ``eunomia explain --run`` about the last wait of an ended job."""

from collections.abc import Mapping, Sequence

from eunomia_appmaster.client import OVER
from eunomia_appmaster.commands.console import duration
from eunomia_appmaster.protocol import arbiter_pb2 as pb

_LABELS = {"Frees it": "Would free", "Starts": "Forecast", "So far": "By then"}
_HEAD = {"    wants ": "    wanted ", "    has ": "    had "}
_WIDTH = 11
"""Width of a line's label in characters."""


def last_waits(
    found: Sequence[pb.Explanation], ended: Sequence[pb.Explanation], seen_at: Mapping[str, float]
) -> dict[str, float]:
    """Return the time of the last wait by job, in seconds since the arbiter's start, for jobs that no longer wait.

    Args:
        found: explanations of why jobs waited or failed.
        ended: explanation of the app or the job that has ended, if one has.
        seen_at: time of the explanations in ``found`` by job, in seconds since the arbiter's start.
    """
    whole = {one.app for one in ended if one.job == one.app}
    alone = {one.job for one in (*ended, *found) if one.state in OVER}
    return {one.job: seen_at[one.job] for one in found if one.job in seen_at and (one.app in whole or one.job in alone)}


def in_the_past(block: Sequence[str], times: Sequence[float]) -> list[str]:
    """Return an explanation's lines in the past tense, as a last wait.

    Args:
        block: the lines of one job, or of several with the same reason.
        times: time of each job's last wait, in seconds since the arbiter's start.
    """
    first, last = duration(min(times)), duration(max(times))
    job, _, rest = block[0].partition("   ")
    for present, past in _HEAD.items():
        rest = rest.replace(present, past, 1)
    rest = f"was {rest}" if len(times) == 1 else rest.replace(" jobs ", " jobs were ", 1)
    when = f"at {first}" if first == last else f"at {first} to {last}"
    head = f"Last wait{'' if len(times) == 1 else 's'}, {when}: {job}   {rest}"
    return [head, *map(_line_in_the_past, block[1:])]


def _line_in_the_past(line: str) -> str:
    label = line[:_WIDTH].rstrip()
    return f"{_LABELS[label]:<{_WIDTH}}{line[_WIDTH:]}" if label in _LABELS else line
