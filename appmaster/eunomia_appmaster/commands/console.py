"""Helpers that the commands share: options, formats of numbers, tables."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from eunomia.units import format_duration
from eunomia_appmaster.node.local_machine import CPU_TYPE
from eunomia_appmaster.protocol import arbiter_pb2 as pb

Address = Annotated[
    str | None, typer.Option("--address", metavar="HOST:PORT", help="The arbiter's; default: the one that runs.")
]
StateDir = Annotated[
    Path | None, typer.Option("--state-dir", metavar="DIR", help="The arbiter's state folder, to find it by.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, or one a line.")]

NOT_KNOWN = "-"


def duration(seconds: float) -> str:
    """Return seconds as text: ``4 s``, ``1m12s``."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    return format_duration(seconds)


def number(value: float | None, digits: int = 2) -> str:
    """Return a number as text, or a dash if it is unknown."""
    return NOT_KNOWN if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def given(message: Any, field: str) -> float | None:
    """Return an optional number of a message; None if it is absent."""
    return float(getattr(message, field)) if message.HasField(field) else None


def missing(slots: Sequence[pb.MissingSlot]) -> str:
    """Return one line about the missing slots of the cluster; empty if none is missing.

    A GPU is missing if it was not found. A CPU slot, a share of the CPUs, is missing after a start with a smaller
    ``--slots``.
    """
    several = len({slot.node for slot in slots}) > 1
    by_reason = [[slot for slot in slots if slot.cpus == cpus] for cpus in (True, False)]
    return "; ".join(_missing(some, several=several) for some in by_reason if some)


def _missing(slots: Sequence[pb.MissingSlot], *, several: bool) -> str:
    names = ", ".join(f"{slot.node}/{slot.slot}" if several else str(slot.slot) for slot in slots)
    where = "" if several else f" of {slots[0].node}"
    kinds = ", ".join(sorted({slot.gpu_type for slot in slots}))
    what = f"slot {names}{where} ({kinds}) is" if len(slots) == 1 else f"slots {names}{where} ({kinds}) are"
    again = "it" if len(slots) == 1 else "them"
    there = "it is" if len(slots) == 1 else "they are"
    if slots[0].cpus:
        more = (
            "a larger --slots"
            if {slot.gpu_type for slot in slots} == {CPU_TYPE}
            else "a larger --slots or more of --slot-types"
        )
        return f"{what} left out: the launcher was started with fewer slots than before; {more} uses {again}"
    return f"{what} missing: not found when the launcher started; a restart uses {again} again once {there} there"


def missing_facts(slots: Sequence[pb.MissingSlot]) -> list[dict[str, Any]]:
    """Return the missing slots as JSON objects."""
    return [{"node": slot.node, "slot": slot.slot, "gpu_type": slot.gpu_type} for slot in slots]


def now_utc() -> str:
    """Return the present time in UTC, ISO 8601 with milliseconds and ``Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """Return the lines of a table; columns named in ``right`` are right-aligned."""
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]
    lines = []
    for row in (headers, *rows):
        cells = [
            cell.rjust(width) if header in right else cell.ljust(width)
            for header, cell, width in zip(headers, row, widths, strict=True)
        ]
        lines.append("   ".join(cells).rstrip())
    return lines
