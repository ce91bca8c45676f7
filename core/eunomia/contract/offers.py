"""The offer of a round: the GPUs that it may reassign, and the apps that may claim them."""

from eunomia.model.shapes import LazyFields, builds, lazy
from eunomia.units import Ints, OfferId, Reals, Rows, Scope, Seconds


@builds
class Offer(LazyFields):
    """The GPUs on offer, with facts about the cluster on which bids depend."""

    id: OfferId
    scope: Scope
    made_at: Seconds
    gpus: Ints
    """Numbers of the GPUs on offer, ascending and therefore grouped by machine."""
    apps: Rows | None = None
    """Rows of the apps that may claim GPUs; None: every app."""
    candidates: Rows
    """Rows of the jobs that may get GPUs: jobs that wait, and jobs that hold only GPUs on offer."""
    free_gpus: int
    """Number of GPUs on offer, whether or not they are free."""
    contended: bool = True
    """Whether demand exceeds the offer; if False, all waiting jobs fit and no ranking is needed."""
    retune: bool = False
    """Whether the placement may change the CPUs and memory of jobs that are not claims (its contract: RETUNES)."""
    closes_at: Seconds | None = None
    """When bidding ends, in seconds; None: the arbiter values the offer itself, in this step."""
    lease: Seconds
    capacity: Ints
    """Number of the cluster's GPUs of each type, without GPUs that are down."""
    contention: Reals
    """N_avg of each app row: the average number of contending apps, from which ρ is computed."""
    whole: bool = False
    """Whether the offer contains every GPU that may be reassigned and is open to every app."""
    named: Ints
    """Machines on which apps hold GPUs that are not on offer; in bids, each is a class of its own."""


lazy(Offer, "gpus", "candidates", "free_gpus", "contention", "named")
