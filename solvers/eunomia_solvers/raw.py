"""A back end's answer, before it is checked and converted to the caller's units."""

import math

from eunomia.model.shapes import builds
from eunomia.units import Reals
from eunomia_solvers.outcome import Status


class UnavailableError(Exception):
    """A solver cannot solve this programme here; the text gives the reason."""


@builds
class Answer:
    """The solution of a minimisation whose objective is of order one."""

    status: Status
    x: Reals | None
    row_price: Reals | None = None
    """[constraints] change of the objective for one more unit of each row's bound; None: the back end gives none."""
    bound: float = -math.inf
    version: str
    said: str = ""
    """The solver's own message if it gave no answer."""
    cut_short: bool = False
