"""What a user may say of how a trace is read."""

from eunomia.shapes import value
from eunomia_testbed.performance import GavelThroughputs


@value
class ReadOptions:
    """Options of every reader; what a format has no use for is not looked at."""

    strict: bool = False
    """The first row that would be dropped is an error."""
    throughputs: GavelThroughputs | None = None
    """Measured rates by job type: Gavel's and Shockwave's traces tell steps, and times only through them."""
    gpu_type: str = "v100"
    """The type, as ``throughputs`` has it, on which a trace's steps take the time that it means."""
    models: tuple[str, ...] = ()
    """Models to draw from, by a hash of id and seed, for jobs whose model the trace does not tell."""
    drawn_models: bool = False
    """Take models that the makers of the file drew (Philly's ``afs_model``)."""
    seed: int = 0
    """Of the draw of models."""
    by_group: bool = False
    """Users are the trace's groups (virtual clusters, queues), not its users."""
    users: tuple[str, ...] = ()
    """Only jobs of these; empty: all."""
    first_jobs: int | None = None
    """Only so many, the first by arrival; None: all."""
