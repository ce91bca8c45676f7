"""Minimum makespan: all present jobs finish as soon as possible (Gavel, §4.1; open shop scheduling, OSSP)."""

from collections.abc import Mapping

import numpy as np

from eunomia import Snapshot
from eunomia.units import Reals
from eunomia_plugins.gavel import reference
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.programmes import highest_level, spread
from eunomia_plugins.gavel.sharing import Row, SharingOptions, Solved, TimeSharing

NEARLY_DONE = 1e-9
"""Lower bound on a job's iterations left, which keeps its seconds left positive."""


class MinTotalDurationOptions(SharingOptions):
    """Options of ``min_total_duration``."""

    performance: bool = True
    """Whether a job's rates on the GPU types are used; if not, it counts as equally fast on all types."""


class MinTotalDuration(TimeSharing[MinTotalDurationOptions]):
    """Minimises the time T by which every job m finishes: throughput(m, X) T >= iterations left.

    With s = 1 / T this is one linear programme, the highest common level of throughput over work. If jobs can be
    preempted and moved between types, an open shop has no shorter schedule (Gonzalez and Sahni, 1976). Remaining
    capacity is spread over all jobs. A job of unknown work counts as having the mean work of the others.
    """

    name = "min_total_duration"
    options_type = MinTotalDurationOptions

    def _solve(self, snapshot: Snapshot, instance: Instance, names: list[str], notes: Mapping[str, Row]) -> Solved:
        return Solved(self._solution(instance, seconds_left(instance, snapshot.iterations_left(instance.jobs))))

    def _solution(self, instance: Instance, left: Reals) -> Reals:
        speed = instance.rate / np.maximum(instance.rate.max(axis=1), NEARLY_DONE)[:, None]
        gain = speed / left[:, None]
        if self.options.solver == "reference":
            return reference.highest_level(instance, gain)[0]
        return spread(instance, highest_level(instance, gain)[0])


def seconds_left(instance: Instance, iterations: Reals) -> Reals:
    """Return the seconds that a job's work left takes on its best type, [job]; for unknown work the others' mean."""
    seconds = iterations / np.where(instance.rate.max(axis=1) > 0.0, instance.rate.max(axis=1), 1.0)
    known = ~np.isnan(seconds)
    mean = float(seconds[known].mean()) if known.any() else 1.0
    found: Reals = np.maximum(np.where(known, seconds, mean), NEARLY_DONE)
    return found
