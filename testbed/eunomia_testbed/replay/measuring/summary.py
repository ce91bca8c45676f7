"""Summarises samples as the rates and costs of a file of profiles, with the spread of each cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from eunomia.errors import InputError
from eunomia_testbed.performance.replay_profiles import Costs, CostSpread, Profiles, ProgramRate
from eunomia_testbed.replay.measuring.reading import Cost, CostSample, RateSample, Samples
from eunomia_testbed.replay.measuring.setting import RateSetting

LEAST_SAMPLES: Final = 3
"""Fewest samples of a cost for which a program has its own mean."""


def profiles_of(samples: Sequence[RateSample], speeds: Mapping[str, float]) -> Profiles:
    """Return the rate of each measured setting: the total steps of its samples over their total seconds."""
    steps: dict[tuple[str, int, int, str], list[RateSample]] = defaultdict(list)
    for sample in samples:
        steps[sample.program, sample.batch_size, sample.slots, sample.slot_type].append(sample)
    rates = [
        ProgramRate(
            program=program,
            batch_size=batch_size,
            slots=slots,
            slot_type=slot_type,
            iterations_per_second=sum(each.steps for each in found) / sum(each.seconds for each in found),
            samples=len(found),
            spread=_spread([each.seconds / each.steps for each in found]),
        )
        for (program, batch_size, slots, slot_type), found in sorted(steps.items())
    ]
    return Profiles(rates=tuple(rates), slot_speeds=dict(speeds))


def _spread(seconds: Sequence[float]) -> float:
    """Return the standard deviation of times as a fraction of their mean; 0 for a single time."""
    return float(np.std(seconds, ddof=1) / np.mean(seconds)) if len(seconds) > 1 else 0.0


def check_complete(profiles: Profiles, wanted: Sequence[RateSetting]) -> None:
    """Check that each wanted setting has a rate.

    Raises:
        InputError: a setting has no rate, since its jobs made too few steps.
    """
    for setting in wanted:
        if setting.slots not in profiles.points(setting.program, setting.batch_size, setting.slot_type):
            rule = "a measuring run must log at least a few steps, each under the same tag"
            raise InputError(rule, value=setting.describe(), place="profiles")


def spreads_of(samples: Sequence[CostSample]) -> tuple[CostSpread, ...]:
    """Return median, 95th percentile and number of samples of each cost, for all programs and for each one."""
    seconds: dict[tuple[str, Cost], list[float]] = defaultdict(list)
    for sample in samples:
        for program in ("", sample.program):
            seconds[program, sample.cost].append(sample.seconds)
    order = list(Cost)
    return tuple(
        CostSpread(
            program=program,
            cost=cost.value,
            mean_seconds=max(0.0, float(np.mean(found))),
            median_seconds=max(0.0, float(np.median(found))),
            p95_seconds=max(0.0, float(np.percentile(found, 95))),
            samples=len(found),
        )
        for (program, cost), found in sorted(seconds.items(), key=lambda item: (item[0][0], order.index(item[0][1])))
    )


def costs_of(spreads: Sequence[CostSpread]) -> tuple[Costs, Mapping[str, Costs]]:
    """Return the mean costs of all programs together, and those of each program.

    Costs are means because they add up over a run, and a real run's costs, to which they are compared, are means too.
    A program with too few samples of a cost has the mean of all programs.
    """
    common = {each.cost: each.mean_seconds for each in spreads if not each.program}
    programs = dict.fromkeys(each.program for each in spreads if each.program)
    by_program = {
        program: common
        | {
            each.cost: each.mean_seconds
            for each in spreads
            if each.program == program and each.samples >= LEAST_SAMPLES
        }
        for program in programs
    }
    return _costs(common), {program: _costs(found) for program, found in by_program.items()}


def mean_costs(samples: Sequence[CostSample], before: Costs) -> Costs:
    """Return the mean of each cost over all samples; a cost without a sample is taken from ``before``."""
    seconds: dict[Cost, list[float]] = defaultdict(list)
    for sample in samples:
        seconds[sample.cost].append(sample.seconds)
    found = {cost: float(np.mean(seconds[cost])) for cost in Cost if seconds[cost]}
    return _costs({cost.value: found.get(cost, getattr(before, f"{cost.value}_seconds")) for cost in Cost})


def _costs(means: Mapping[str, float]) -> Costs:
    return Costs(**{f"{cost.value}_seconds": max(0.0, means.get(cost.value, 0.0)) for cost in Cost})


def measured_from(samples: Samples, speeds: Mapping[str, float]) -> tuple[Profiles, Costs, Mapping[str, Costs]]:
    """Return profiles, mean costs, and costs by program from samples, measured before a replay or during it."""
    costs, by_program = costs_of(spreads_of(samples.costs))
    return profiles_of(samples.rates, speeds), costs, by_program
