"""What a plan journals: its size, its value and how near the optimum it is."""

import dataclasses
from collections.abc import Mapping

from eunomia.contract.records import PlainColumn


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan as one row of the table ``shockwave``."""

    jobs: int
    rounds: int
    objective: float
    """Value of the objective, equation (11)."""
    bound: float
    """No plan has a greater objective."""
    gap: float
    """Their relative distance."""
    makespan_bound: float
    """H in seconds, after the window."""
    starts: int
    """Starts within the window, the jobs that run before it not counted."""
    granted: int
    """GPU-rounds."""
    cut_short: bool
    """A time limit ended the solver: another machine may plan otherwise."""

    @property
    def table(self) -> str:
        """The table's name."""
        return "shockwave"

    def columns(self) -> Mapping[str, PlainColumn]:
        """One row."""
        return {field.name: [getattr(self, field.name)] for field in dataclasses.fields(self)}
