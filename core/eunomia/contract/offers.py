"""The offer of a round: the GPUs that it may reassign, and the apps that may claim them."""

from eunomia.model.shapes import LazyFields, builds, lazy
from eunomia.units import Ints, OfferId, Reals, Rows, Scope, Seconds


@builds
class Offer(LazyFields):
    """The GPUs on offer, with the facts about the cluster that a bid depends on."""

    id: OfferId
    scope: Scope
    made_at: Seconds
    gpus: Ints
    """GPU numbers, ascending, and therefore grouped by machine."""
    apps: Rows | None = None
    """Rows of the apps that may claim; None: every app."""
    candidates: Rows
    """Rows of the jobs that may get GPUs: jobs that wait, and jobs that hold only GPUs on offer."""
    free_gpus: int
    """Number of GPUs on offer to the candidates."""
    contended: bool = True
    """False: all waiting jobs fit, and no ranking is needed."""
    retune: bool = False
    """Whether the placement may change the CPUs and memory of jobs that are not claims: its contract gives RETUNES."""
    closes_at: Seconds | None = None
    """When bidding ends, in seconds; None: the arbiter values the offer itself, in this step."""
    lease: Seconds
    capacity: Ints
    """Number of the cluster's GPUs by type, without GPUs that are down."""
    contention: Reals
    """N_avg, the average number of contending apps, by app row; ρ is computed from it."""
    whole: bool = False
    """True: the offer contains every GPU that may be reassigned, and every app may claim."""
    named: Ints
    """Machines on which apps hold GPUs that are not on offer: bids name these machines one by one, not by class."""


lazy(Offer, "gpus", "candidates", "free_gpus", "contention", "named")
