"""Ids, units, array types and enumerations shared by all parts of Eunomia."""

import math
import re
from enum import Enum, IntEnum
from typing import Any, Final, NewType

import numpy as np
from numpy.typing import NDArray

from eunomia.errors import InputError

Rows = NDArray[np.int32]
"""Row numbers of a table; -1 means no row."""
Row = int | np.integer[Any]
"""A row number, as a plain number or as an item of ``Rows``."""
Ints = NDArray[np.int64]
"""An array of counts, GPU numbers or lease numbers."""
Reals = NDArray[np.float64]
"""An array of seconds, GiB, rates or shares; the name of the variable gives the unit."""
Bools = NDArray[np.bool_]
Ids = NDArray[Any]
"""Ids as Python strings in an object array."""

Seconds = NewType("Seconds", float)
"""Seconds since the arbiter's start, or a duration in seconds."""
NEVER: Final = Seconds(math.inf)
ZERO: Final = Seconds(0.0)
NONE: Final = -1
"""The row number that stands for no row."""

UserId = NewType("UserId", str)
AppId = NewType("AppId", str)
JobId = NewType("JobId", str)
"""The id of a job: ``app/number``."""
LeaseId = NewType("LeaseId", int)
OfferId = NewType("OfferId", int)
Epoch = NewType("Epoch", int)
"""A fencing token, from one counter of the arbiter; an executor refuses an order with an outdated epoch."""
Version = NewType("Version", int)


class Locality(IntEnum):
    """The locality of a grant's GPUs: a larger value means that they are farther apart."""

    ISLAND = 0
    MACHINE = 1
    RACK = 2
    CLUSTER = 3


class Named(Enum):
    """An enumeration whose members are hashed by identity, so that a set lookup makes no call into Python code."""

    __hash__ = object.__hash__


class Stage(Named):
    """The stages of a round, in calling order."""

    ELASTICITY = "elasticity"
    VALUATION = "valuation"
    ALLOCATION = "allocation"
    REFINE = "refine"
    PLACEMENT = "placement"


class Cause(Named):
    """The cause of a round."""

    ARRIVED = "arrived"
    """An app or a job arrived, or a job became able to run."""
    LEFT = "left"
    """An app or a job ended."""
    FREED = "freed"
    """A GPU became free."""
    LEASE_ENDED = "lease_ended"
    """A lease ended, or its protected time ended while jobs wait for its GPUs (``Triggers.when_unprotected``)."""
    CLUSTER_CHANGED = "cluster_changed"
    ADAPTED = "adapted"
    """A job changed its batch size."""
    REPORTED = "reported"
    """A forecast or a measured rate was reported."""
    BOUNDARY = "boundary"
    """A period of the profile, or a round of an executor that works in rounds, ended."""
    WAKE = "wake"
    """An allocation or a valuation requested a round at this time."""


class Unit(Named):
    """The kind of claim: the unit for which GPUs are valued, allocated and accounted."""

    JOB = "job"
    APP = "app"
    GROUP = "group"
    """One user's jobs of one kind: OEF's virtual user."""
    USER = "user"


class SizeUnit(Named):
    """The quantity that the values of ``BySize`` measure; in each unit, a higher value is better."""

    SECONDS_LEFT = "seconds left"
    """Negative: -100 means that the job takes another 100 s at that size."""
    PROGRESS_RATE = "progress a second"
    """Fraction of the job's total work that is done in a second at that size."""
    LOSS_REDUCTION = "reductions of loss"
    """Decrease of the job's normalized loss, which falls from 1 to 0, within a time that the valuation chooses."""
    UTILITY = "utilities"
    """A utility in the valuation's own unit; only values of the same answer are comparable."""


class Scope(Named):
    """The GPUs that an offer may contain."""

    FREE = "free"
    """Free GPUs and GPUs whose lease has ended."""
    ALL = "all"
    """Every GPU that is not protected."""


class Rest(Named):
    """What happens to claims that a stage's answer does not name: they keep or release their GPUs."""

    KEEP = "keep"
    RELEASE = "release"


class Misfit(Enum):
    """What a placement does with a claim that cannot be placed: skip it, or stop."""

    SKIP = "skip"
    STOP = "stop"


class Basis(IntEnum):
    """The source of a known rate."""

    ASSUMED = 0
    DECLARED = 1
    MEASURED = 2


_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(B|[kKMGT]i?B)")
_MEMORY_BYTES = {"B": 1.0} | {
    f"{prefix}{infix}B": float(base**power)
    for infix, base in (("", 1000), ("i", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}


def parse_duration(text: object, *, name: str, place: str | None = None, zero: bool = False) -> Seconds:
    """Parse a duration such as ``"500ms"``, ``"10m"`` or ``"1h30m"`` into seconds.

    Args:
        text: the user's input.
        name: name of the value, for error messages.
        place: file and key, for error messages.
        zero: whether ``"0s"`` is allowed.

    Raises:
        InputError: the text has no units, or the duration is negative, zero where not allowed, or above 100 years.
    """
    rule = f'{name} must be a {"" if zero else "positive "}duration with a unit, such as "10m"'
    shown = f'"{text}"' if isinstance(text, str) else repr(text)
    if not isinstance(text, str) or not re.fullmatch(f"(?:{_DURATION.pattern})+", text.strip()):
        raise InputError(rule, value=shown, place=place)
    seconds = sum(float(amount) * _DURATION_SECONDS[unit] for amount, unit in _DURATION.findall(text))
    if seconds > 100 * 365.25 * 86400.0:
        raise InputError(f"{name} must be at most 100 years", value=shown, place=place)
    if seconds == 0.0 and not zero:
        raise InputError(rule, value=shown, place=place)
    return Seconds(seconds)


def format_duration(seconds: float) -> str:
    """Format a duration in seconds as ``parse_duration`` reads it, rounded to at most two units."""
    if seconds < 1.0:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60.0:
        return f"{seconds:.3g}s"
    parts = []
    rest = round(seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def parse_memory(text: object, *, name: str, place: str | None = None) -> float:
    """Parse an amount of memory such as ``"500GB"`` (10^9 bytes each) or ``"500GiB"`` and return it in GiB.

    Raises:
        InputError: the text is not a positive number with a unit.
    """
    match = _MEMORY.fullmatch(text.strip()) if isinstance(text, str) else None
    scale = _MEMORY_BYTES.get(match.group(2).replace("k", "K", 1)) if match else None
    if match is None or scale is None or float(match.group(1)) <= 0.0:
        rule = f'{name} must be a positive amount of memory with a unit, such as "768GiB"'
        raise InputError(rule, value=f'"{text}"' if isinstance(text, str) else repr(text), place=place)
    return float(match.group(1)) * scale / 1024.0**3
