"""Ids, units, array types and enumerations shared by all parts of Eunomia."""

import math
import re
from enum import Enum, IntEnum
from typing import Any, Final, NewType

import numpy as np
from numpy.typing import NDArray

from eunomia.errors import InputError

Rows = NDArray[np.int32]
"""Row numbers of a table; -1: none."""
Row = int | np.integer[Any]
"""A row number, as a plain number or as an item of ``Rows``."""
Ints = NDArray[np.int64]
"""Counts, GPU numbers, lease numbers."""
Reals = NDArray[np.float64]
"""Seconds, GiB, rates or shares; the name gives the unit."""
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
"""``app/number``."""
LeaseId = NewType("LeaseId", int)
OfferId = NewType("OfferId", int)
Epoch = NewType("Epoch", int)
"""A fencing token from one counter of the arbiter; an executor refuses an order with an older epoch."""
Version = NewType("Version", int)


class Locality(IntEnum):
    """How far apart the GPUs of a grant are; a larger value means farther apart."""

    ISLAND = 0
    MACHINE = 1
    RACK = 2
    CLUSTER = 3


class Named(Enum):
    """An enumeration whose members are hashed by identity, so that sets of them need no Python call."""

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
    """A GPU came back."""
    LEASE_ENDED = "lease_ended"
    """A lease ended, or the protected part of a lease whose GPUs jobs wait for (``Triggers.when_unprotected``)."""
    CLUSTER_CHANGED = "cluster_changed"
    ADAPTED = "adapted"
    """A job changed its batch size."""
    REPORTED = "reported"
    """A forecast or a measured rate was reported."""
    BOUNDARY = "boundary"
    """A period of the profile ended, or a round of the executor."""
    WAKE = "wake"
    """An allocation or a valuation asked for a round at this time."""


class Unit(Named):
    """The unit that values GPUs, receives them and is charged for them."""

    JOB = "job"
    APP = "app"
    GROUP = "group"
    """One user's jobs of one kind: OEF's virtual user."""
    USER = "user"


class SizeUnit(Named):
    """The quantity that values by size are, so that an allocation does not read loss as time; higher is better."""

    SECONDS_LEFT = "seconds left"
    """Negative: -100 means that the job takes another 100 s at that size."""
    PROGRESS_RATE = "progress a second"
    """The part of the job's whole work done in a second at that size."""
    LOSS_REDUCTION = "reductions of loss"
    """By how much the job's normalized loss, from 1 to 0, falls in a time that the valuation chooses."""
    UTILITY = "utilities"
    """Numbers of the valuation's own; only the values of one answer can be compared."""


class Scope(Named):
    """The GPUs that an offer may contain."""

    FREE = "free"
    """Free GPUs and GPUs whose lease has ended."""
    ALL = "all"
    """Every GPU that is not protected."""


class Rest(Named):
    """What happens to claims that an answer does not name: they keep their GPUs, or release them."""

    KEEP = "keep"
    RELEASE = "release"


class Misfit(Enum):
    """What happens when a claim cannot be placed: the placement skips it, or stops there."""

    SKIP = "skip"
    STOP = "stop"


class Basis(IntEnum):
    """How a rate is known."""

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
    """Read a duration such as ``"500ms"``, ``"10m"`` or ``"1h30m"``.

    Args:
        text: the user's input.
        name: name of the value, for the error.
        place: file and key, for the error.
        zero: whether ``"0s"`` is allowed.

    Raises:
        InputError: not a string with units, negative, zero where that is not allowed, or more than 100 years.
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
    """Write a duration as ``parse_duration`` reads it, in at most two units."""
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
    """Read an amount of memory such as ``"500GB"`` (10^9 bytes) or ``"500GiB"`` and return it in GiB.

    Raises:
        InputError: not a positive number with a unit.
    """
    match = _MEMORY.fullmatch(text.strip()) if isinstance(text, str) else None
    scale = _MEMORY_BYTES.get(match.group(2).replace("k", "K", 1)) if match else None
    if match is None or scale is None or float(match.group(1)) <= 0.0:
        rule = f'{name} must be a positive amount of memory with a unit, such as "768GiB"'
        raise InputError(rule, value=f'"{text}"' if isinstance(text, str) else repr(text), place=place)
    return float(match.group(1)) * scale / 1024.0**3
