"""Claims: the jobs, apps, users or groups to which the entries of a valuation or an allocation belong."""

from eunomia.model.shapes import LazyFields, builds, lazy
from eunomia.units import Reals, Rows, Unit


@builds
class Claims(LazyFields):
    """Claims of one unit (jobs, apps, users or groups); a claim's app and user follow from its row."""

    unit: Unit
    rows: Rows
    """Rows of jobs, apps or users; claims of the unit GROUP have user rows and are distinguished by ``job_kind``."""
    job_kind: Rows | None = None
    """Kind of job of each claim, for claims of groups."""
    weight: Reals | None = None
    """Weight of each claim; None: every claim has weight 1."""


lazy(Claims, rows="int32")
