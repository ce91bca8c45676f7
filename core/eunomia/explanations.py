"""Why a job waits, in words and numbers."""

from collections.abc import Mapping

from eunomia.shapes import value


@value
class Explanation:
    """Answer of a plugin to why a job waits."""

    text: str
    numbers: Mapping[str, float]
    frees: tuple[str, ...] = ()
    """What would free the job, one sentence each."""
    starts_in: tuple[float, float] | None = None
    """Seconds from now, earliest and latest; None: not known."""
