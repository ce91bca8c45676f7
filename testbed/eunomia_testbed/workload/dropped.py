"""The dropped rows of a trace, each with the rule that it breaks, for ``dropped.csv``."""

from eunomia.model.shapes import value


@value
class Dropped:
    """One row that a reader or a simulation dropped."""

    file: str
    line: int
    """Line number from 1, counting the header; 0: the whole file."""
    rule: str
    """The broken rule, as in an error: ``num_gpus must be at least 1``."""
    value: str
