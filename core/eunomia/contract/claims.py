"""Claims: the jobs, apps, users or groups that a valuation or an allocation has one entry each for."""

from eunomia.model.shapes import LazyFields, builds, lazy
from eunomia.units import Reals, Rows, Unit


@builds
class Claims(LazyFields):
    """Claims of one unit; the app and the user of a claim follow from its row."""

    unit: Unit
    rows: Rows
    """Rows of jobs, apps or users; for GROUP rows of users, distinguished by ``job_kind``."""
    job_kind: Rows | None = None
    """Kind of job of each claim, for claims of groups."""
    weight: Reals | None = None
    """Weight of each claim; None: every claim has weight 1."""


lazy(Claims, rows="int32")
