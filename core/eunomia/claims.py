"""Who values, receives and is charged: the rows that valuations and allocations are columns over."""

from eunomia.shapes import builds, lazy
from eunomia.units import Reals, Rows, Unit


@builds
class Claims:
    """Claims of one unit; app and user of a claim follow from the model."""

    unit: Unit
    rows: Rows
    """Rows of jobs, apps or users; for GROUP rows of users, told apart by ``job_kind``."""
    job_kind: Rows | None = None
    """With GROUP: the kind of job of each claim."""
    weight: Reals | None = None
    """None: each weighs 1."""


lazy(Claims, "rows")
