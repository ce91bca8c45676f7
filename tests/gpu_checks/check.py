"""One check: its name, what it does, and how long it may take."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eunomia.errors import EunomiaError


class GpuCheckError(EunomiaError):
    """What a GPU showed is not what it must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCheck:
    """A check on a GPU.

    Attributes:
        name: as ``--only`` takes it.
        run: makes the check in an empty folder and returns its result in one line; raises where it fails.
        limit_seconds: after which it counts as failed.
    """

    name: str
    run: Callable[[Path], str]
    limit_seconds: float = 300.0


def must(condition: bool, rule: str, value: object, place: str | None = None) -> None:
    """Fail the check unless the condition holds.

    Raises:
        GpuCheckError: it does not.
    """
    if not condition:
        raise GpuCheckError(rule, value=str(value), place=place)
