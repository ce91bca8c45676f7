"""A plugin's explanation of why a job waits."""

from collections.abc import Mapping

from eunomia.model.shapes import value


@value
class Explanation:
    """The answer to ``eunomia_explain``: why a job waits, as a text and numbers."""

    text: str
    numbers: Mapping[str, float]
    frees: tuple[str, ...] = ()
    """Events that would let the job start, one sentence each."""
    starts_in: tuple[float, float] | None = None
    """Earliest and latest start in seconds from now; None: not known."""
