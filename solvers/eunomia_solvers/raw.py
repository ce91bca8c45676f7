"""The unchecked answer of a solver back end, before it is converted to the caller's units."""

import math

from eunomia.model.shapes import builds
from eunomia.units import Reals
from eunomia_solvers.outcome import Status


class UnavailableError(Exception):
    """A solver cannot be used for this programme on this installation; the message gives the reason."""


@builds
class Answer:
    """A back end's solution of the scaled minimisation."""

    status: Status
    x: Reals | None
    row_price: Reals | None = None
    """[constraints] dual values: change of the objective per unit of each row's bound; None: not available."""
    bound: float = -math.inf
    version: str
    said: str = ""
    """The solver's own status or message, reported if there is no answer."""
    cut_short: bool = False
