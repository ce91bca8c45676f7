"""Max-min fairness over effective throughput: the smallest gain of any job is maximised (Gavel, §4.1)."""

from collections.abc import Mapping
from typing import Literal

from eunomia import Snapshot
from eunomia.units import Reals
from eunomia_plugins.gavel import reference
from eunomia_plugins.gavel.filling import fill_up
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.programmes import highest_level, spread
from eunomia_plugins.gavel.sharing import Row, SharingOptions, Solved, TimeSharing


class MaxMinFairnessOptions(SharingOptions):
    """Options of ``max_min_fairness``."""

    beyond: Literal["spread", "filled", "nothing"] = "spread"
    """Use of capacity left above the level: an equal additional time share, water filling by level, or nothing."""


class MaxMinFairness(TimeSharing[MaxMinFairnessOptions]):
    """Maximises the smallest effective throughput of a job, relative to that with an equal share of each type.

    The optimum is not unique. Every job gets the level, and ``beyond`` selects among the optima with that level; equal
    jobs get equal shares.
    """

    name = "max_min_fairness"
    options_type = MaxMinFairnessOptions

    def _solve(self, snapshot: Snapshot, instance: Instance, names: list[str], notes: Mapping[str, Row]) -> Solved:
        gain = gains(instance)
        if self.options.beyond == "filled":
            return Solved(fill_up(instance, gain))
        solve = reference.highest_level if self.options.solver == "reference" else highest_level
        share, _ = solve(instance, gain)
        return Solved(spread(instance, share) if self.options.beyond == "spread" else share)


def gains(instance: Instance) -> Reals:
    """Return the gain of each job, [job, type]: gang size x rate / (weight x rate with an equal share of each type)."""
    per_gpu = instance.gpus / (instance.weight * instance.equal_rate)
    found: Reals = instance.rate * per_gpu[:, None]
    return found
