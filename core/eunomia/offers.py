"""What may be touched this round, and who may claim it."""

from eunomia.shapes import builds, lazy
from eunomia.units import Ints, OfferId, Reals, Rows, Scope, Seconds


@builds
class Offer:
    """GPUs on offer. It carries all that a bid needs and an app does not know."""

    id: OfferId
    scope: Scope
    made_at: Seconds
    gpus: Ints
    """GPU numbers, ascending, and so grouped by machine."""
    apps: Rows | None = None
    """App rows that may claim; None: everyone."""
    candidates: Rows
    """Job rows that may be granted something now: waiting, or holding only GPUs that are on offer."""
    free_gpus: int
    """How many GPUs are on offer to the candidates."""
    contended: bool = True
    """False: all that waits fits, and no ranking is needed."""
    retune: bool = False
    """May the CPUs and memory of other holders change?"""
    closes_at: Seconds | None = None
    """None: valued in process, in this step."""
    lease: Seconds
    capacity: Ints
    """The cluster's GPUs by type, those that are down left out."""
    contention: Reals
    """N_avg by app row: what rho needs."""
    whole: bool = False
    """True: nothing was left out of what may be touched, and nobody."""
    named: Ints
    """Machines on which apps hold GPUs that are not on offer: bids tell these machines apart from their like."""


lazy(Offer, "gpus", "candidates", "free_gpus", "contention", "named")
