"""What Shockwave's stages read."""

from collections.abc import Mapping

from eunomia import Stage

READS: Mapping[tuple[str, Stage], set[str]] = {
    # Progress by rounds follows from the rates of the present and the coming regimes.
    ("shockwave_utility", Stage.VALUATION): {"rates", "regimes"},
    # Times left, which the makespan bound needs, follow from both too.
    ("shockwave", Stage.ALLOCATION): {"sizes", "rates", "regimes", "values"},
}
