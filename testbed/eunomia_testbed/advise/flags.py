"""The flags of ``eunomia advise``: those of a simulation of a trace, the goals, and the budget of CPU time."""

import sys
from typing import Annotated

import typer
from pydantic import BeforeValidator

from eunomia.errors import InputError
from eunomia.units import parse_duration
from eunomia.words import did_you_mean, shown
from eunomia_appmaster.commands.model_flags import FlagType
from eunomia_testbed.evidence.goals import GOALS
from eunomia_testbed.spec.simulation import SimulateFlags

NOT_HERE = ("workload", "seeds", "resample", "windows")
"""Fields of ``SimulateFlags`` that ``advise`` sets itself and rejects as flags."""


class AdviseFlags(SimulateFlags):
    """The flags of ``eunomia advise``."""

    goal: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda given: tuple(given or ())),
        FlagType(list[str] | None),
        typer.Option("--goal", help=f"One of {', '.join(GOALS)}; may be given several times. By default all."),
    ] = ()
    budget: Annotated[
        str | None,
        typer.Option(metavar="30m", help="CPU time that the simulations may take, in all processes together."),
    ] = "30m"

    def budget_seconds(self) -> float:
        """Return the budget in seconds of CPU time.

        Raises:
            InputError: the budget is not a duration.
        """
        return parse_duration(self.budget or "30m", name="budget", place="--budget")

    def check(self) -> None:
        """Check that no flag of ``NOT_HERE`` is given, that there is one trace, and that goals and budget are valid.

        Raises:
            InputError: one of these rules is broken.
        """
        for name in NOT_HERE:
            if getattr(self, name) is not None:
                rule = f"{self.place(name)} must not be given: advice is on a trace, which it resamples itself"
                raise InputError(rule, value=str(getattr(self, name)), place=self.place(name))
        if isinstance(self.trace, tuple):
            raise InputError("advice must be on one trace", value=f"{len(self.trace)} traces", place="trace")
        for goal in self.goal:
            if goal not in GOALS:
                value = f"{shown(goal)}{did_you_mean(goal, GOALS)}"
                raise InputError(f"goal must be one of {', '.join(GOALS)}", value=value, place="--goal")
        self.budget_seconds()

    def command(self) -> tuple[str, ...]:
        """Return the command line that repeats the advice, as words."""
        return ("eunomia", *sys.argv[1:]) if len(sys.argv) > 1 else ("eunomia", "advise")
