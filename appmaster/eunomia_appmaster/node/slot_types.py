"""Paced slots: CPU slots with types and speeds, which emulate GPUs of several types on a machine without GPUs."""

import math
import re

from eunomia.errors import InputError
from eunomia.model.shapes import value

RESERVE_CPUS = 0.5
"""Number of cores reserved for the arbiter, the launcher and app masters."""
LEAST_SPEED = 0.05
MOST_PACED_SLOTS = 4096
PLACE = "--slot-types"
_ONE = re.compile(r"(\d{1,5})\s*x\s*([A-Za-z][A-Za-z0-9._-]{0,31})\s*:\s*(\d{1,3}(?:\.\d{1,6})?|\.\d{1,6})", re.ASCII)


@value
class SlotType:
    """A number of slots of one type."""

    count: int
    name: str
    speed: float
    """Fraction of a core that each slot gets."""


def parse_slot_types(text: str, cpus: float) -> tuple[SlotType, ...]:
    """Parse slot types such as ``2x fast:1.0, 2x slow:0.5``.

    Args:
        text: the types, separated by commas.
        cpus: cores that this process may use.

    Raises:
        InputError: the text is malformed, a type occurs twice or is "cpu", a speed is out of range, or they need more
            cores than there are.
    """
    found: list[SlotType] = []
    for part in text.split(","):
        match = _ONE.fullmatch(part.strip())
        if match is None:
            raise InputError(
                "slot types must look like 2x fast:1.0, 2x slow:0.5", value=repr(part.strip()[:80]), place=PLACE
            )
        found.append(_checked(SlotType(count=int(match[1]), name=match[2], speed=float(match[3]))))
    names = [one.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError("a slot type must be named once, since it has one speed", value=twice[0], place=PLACE)
    if sum(one.count for one in found) > MOST_PACED_SLOTS:
        raise InputError(f"slots must be at most {MOST_PACED_SLOTS}", value=text[:80], place=PLACE)
    total = math.fsum(one.count * one.speed for one in found)
    if total > cpus - RESERVE_CPUS + 1e-9:
        most = f"{max(0.0, cpus - RESERVE_CPUS):g}, the cores of this process less {RESERVE_CPUS:g}"
        raise InputError(f"the speeds of all slots together must be at most {most}", value=f"{total:g}", place=PLACE)
    return tuple(found)


def _checked(one: SlotType) -> SlotType:
    if one.count < 1:
        raise InputError("a slot type must have at least one slot", value=f"{one.count}x {one.name}", place=PLACE)
    if one.name.lower() == "cpu":
        raise InputError(
            'a slot type must not be named "cpu", as slots without a pace are', value=one.name, place=PLACE
        )
    if not LEAST_SPEED <= one.speed <= 1.0:
        rule = f"a slot's speed must be from {LEAST_SPEED} to 1, as a share of a core"
        raise InputError(rule, value=f"{one.name}:{one.speed:g}", place=PLACE)
    return one
