"""The journal record of a plan: its size, its value and its distance from the optimum."""

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
    """Upper bound: no plan has a greater objective."""
    gap: float
    """Relative distance between objective and bound."""
    makespan_bound: float
    """H in seconds, after the window."""
    starts: int
    """Starts within the window, without the jobs that already run."""
    granted: int
    """Number of GPU-rounds granted."""
    cut_short: bool
    """Whether a time limit ended the solver: another machine may then find another plan."""

    @property
    def table(self) -> str:
        """The table's name."""
        return "shockwave"

    def columns(self) -> Mapping[str, PlainColumn]:
        """One row."""
        return {field.name: [getattr(self, field.name)] for field in dataclasses.fields(self)}
