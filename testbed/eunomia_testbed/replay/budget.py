"""Checks before a replay that its runs fit the budget, and that costs take a small share of the slot time."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import format_duration
from eunomia_testbed.performance.replay_profiles import Costs
from eunomia_testbed.replay.twin import TwinFigures

MOST_COST_SHARE: Final = 0.25
"""Largest share of starts, restores, saves and resizes in the slot time, unless ``--anyway`` is given."""
AIM: Final = 0.9
"""Fraction of the budget that the simulated makespan should take at a chosen speed."""
TRIES: Final = 8


@value
class BudgetForecast:
    """The simulated figures of a replay's runs, computed before the replay."""

    speed: float
    budget_seconds: float
    runs: int
    figures: tuple[TwinFigures, ...]

    @property
    def longest(self) -> TwinFigures:
        """Return the figures of the policy with the largest makespan."""
        return max(self.figures, key=lambda each: each.makespan_seconds)

    @property
    def dearest(self) -> TwinFigures:
        """Return the figures of the policy with the largest share of costs in its slot time."""
        return max(self.figures, key=lambda each: each.cost_share)

    @property
    def whole_seconds(self) -> float:
        """Return the total seconds of all runs."""
        repeats = self.runs / max(1, len(self.figures))
        return repeats * math.fsum(each.makespan_seconds for each in self.figures)

    def words(self, costs: Costs) -> str:
        """Return one line on costs, share and time, for the start of a replay."""
        share = f"{100.0 * self.dearest.cost_share:.0f} % of slot time at {self.speed:g}x"
        each = f"start {costs.start_seconds:.2g} s, save {costs.save_seconds:.2g}, restore {costs.restore_seconds:.2g}"
        return f"Costs: {each}: {share}. {format_duration(self.whole_seconds)} in {self.runs} runs; resumable."


def check_budget(forecast: BudgetForecast, *, anyway: bool) -> None:
    """Check that each run fits the budget, and that costs take at most ``MOST_COST_SHARE`` of the slot time.

    Raises:
        InputError: a check fails; the error names a budget and a speed that suffice, but no speed if costs take so
            large a share that a faster run takes longer.
    """
    longest, dearest = forecast.longest, forecast.dearest
    if longest.makespan_seconds > forecast.budget_seconds:
        speed = forecast.speed * longest.makespan_seconds / (AIM * forecast.budget_seconds)
        faster = f" or --speed {math.ceil(speed):g}x" if longest.cost_share <= MOST_COST_SHARE else ""
        would = f"--budget {_rounded(longest.makespan_seconds / AIM)}{faster} would do"
        found = f"{format_duration(longest.makespan_seconds)} under {longest.policy}; {would}"
        rule = f"a run must fit the budget of {format_duration(forecast.budget_seconds)}"
        raise InputError(rule, value=found, place="--budget")
    if dearest.cost_share > MOST_COST_SHARE and not anyway:
        rule = f"starts, saves and restores must take at most {MOST_COST_SHARE:.0%} of the slot time, or --anyway stand"
        share = f"{dearest.cost_share:.0%} under {dearest.policy}"
        raise InputError(rule, value=f"{share}; {_cheaper(forecast, dearest)}", place="--speed")


def _cheaper(forecast: BudgetForecast, dearest: TwinFigures) -> str:
    """Return, as text, the speed and budget at which costs would take just the largest allowed share."""
    if dearest.useful_slot_seconds <= 0.0:
        return "a lower --speed would do"
    least = (1.0 - MOST_COST_SHARE) / MOST_COST_SHARE * dearest.cost_slot_seconds
    factor = least / dearest.useful_slot_seconds
    speed = max(1, math.floor(forecast.speed / factor))
    budget = forecast.longest.makespan_seconds * forecast.speed / speed / AIM
    return f"--speed {speed}x with --budget {_rounded(budget)} would do"


def speed_for(budget_seconds: float, first: float, makespan: Callable[[float], float]) -> float:
    """Return approximately the lowest speed at which the makespan fits the budget.

    Costs do not scale, so beyond some speed a faster run takes longer. If no makespan fits, the speed with the shortest
    makespan is returned.

    Args:
        budget_seconds: budget of one run.
        first: speed with which the search begins.
        makespan: returns the largest simulated makespan of any policy, in seconds, at a speed.
    """
    aim, speed, found = AIM * budget_seconds, first, dict[float, float]()
    for _ in range(TRIES):
        seconds = makespan(speed)
        if aim * 0.9 <= seconds <= budget_seconds or (seconds <= budget_seconds and speed <= 1.0):
            return speed
        if found and budget_seconds < min(found.values()) <= seconds:
            break  # costs grow faster than the rest shrinks
        found[speed] = seconds
        speed = max(1.0, float(f"{speed * seconds / aim:.3g}"))
    fit = [each for each, seconds in found.items() if seconds <= budget_seconds]
    return min(fit) if fit else min(found, key=lambda each: found[each])


def first_speed(alone_slot_seconds: Sequence[float], slots: int, last_arrival_seconds: float, budget: float) -> float:
    """Return a first guess of the speed at which the trace's work and arrivals fit the budget in seconds."""
    least = max(math.fsum(alone_slot_seconds) / slots, last_arrival_seconds, 1.0)
    return max(1.0, float(f"{least / (AIM * budget):.3g}"))


def _rounded(seconds: float) -> str:
    """Return a duration rounded up to whole minutes, or to whole seconds below two minutes."""
    return f"{math.ceil(seconds / 60.0)}m" if seconds > 120.0 else f"{math.ceil(seconds)}s"
