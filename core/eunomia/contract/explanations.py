"""A plugin's explanation of why a job waits."""

from collections.abc import Mapping

from eunomia.model.shapes import value


@value
class Explanation:
    """Why a job waits, as a text and numbers; the answer to ``eunomia_explain``."""

    text: str
    numbers: Mapping[str, float]
    frees: tuple[str, ...] = ()
    """Events that would let the job start, one sentence each."""
    starts_in: tuple[float, float] | None = None
    """Seconds from now, earliest and latest; None: not known."""
