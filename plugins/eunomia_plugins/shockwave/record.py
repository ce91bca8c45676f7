"""The record of a plan for the journal: its size, value and distance from the optimum."""

import dataclasses
from collections.abc import Mapping

from eunomia.contract.records import PlainColumn


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan, as one row of the table ``shockwave``."""

    jobs: int
    rounds: int
    objective: float
    """Value of the objective, equation (11)."""
    bound: float
    """Upper bound on the objective of any plan."""
    gap: float
    """Relative distance between objective and bound."""
    makespan_bound: float
    """The makespan bound H after the window, in seconds."""
    starts: int
    """Number of starts within the window, excluding jobs that already run."""
    granted: int
    """Number of GPU-rounds granted."""
    cut_short: bool
    """Whether a time limit ended the solver, so that another machine may find another plan."""

    @property
    def table(self) -> str:
        """Return the name of the table."""
        return "shockwave"

    def columns(self) -> Mapping[str, PlainColumn]:
        """Return the columns of the single row."""
        return {field.name: [getattr(self, field.name)] for field in dataclasses.fields(self)}
