"""What a back end answers, before it is checked and put into the caller's units."""

import math

from eunomia.model.shapes import builds
from eunomia.solve.outcome import Status
from eunomia.units import Reals


class UnavailableError(Exception):
    """A solver cannot take this programme here; its text says why."""


@builds
class Answer:
    """Of a minimisation whose objective is of order one."""

    status: Status
    x: Reals | None
    bound: float = -math.inf
    version: str
    said: str = ""
    """The solver's own word, where there is no answer."""
    cut_short: bool = False
