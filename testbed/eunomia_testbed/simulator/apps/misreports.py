"""Errors and misreports of app masters, as factors between true and reported values."""

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.units import Locality, Reals
from eunomia_testbed.simulator.options import Reports
from eunomia_testbed.workload import Workload

_OF_BOTH, _OF_TYPES, _OF_SIZES, _OF_SLOWDOWNS = 0x5E9, 0x5EA, 0x5EB, 0x5EC
"""Random streams, one for each kind of error, so that one kind does not change the draws of another."""


class Misreports:
    """The factors on the work, the times and the slowdowns that each app's master reports.

    Args:
        workload: the workload with the apps.
        cluster: the cluster with the GPU types.
        reports: the options with errors and misreports.
        seed: seed of the draws.
    """

    def __init__(self, workload: Workload, cluster: Cluster, reports: Reports, seed: int) -> None:
        self._apps, count = workload.apps.id, len(workload.apps.id)
        of_work, of_rates = reports.error_of("work"), reports.error_of("rates")
        drawn = np.random.default_rng([seed, _OF_BOTH]).random(size=(2, count))
        lies = np.array([reports.lies.get(app, 1.0) for app in self._apps]) if reports.lies else np.ones(count)
        self.work: list[float] = (_within(of_work, drawn[0]) * lies).tolist()
        """Factor on the work, by app row."""
        self.times = _within(of_rates, drawn[1])
        """Factor on all iteration times, by app row."""
        self._time: list[float] = self.times.tolist()
        self._types = cluster.gpu_types
        self._of_types, self._of_sizes = reports.error_of("types"), reports.error_of("sizes")
        self._of_slowdowns = reports.error_of("slowdowns")
        self._type_lies, self._far_lies = reports.type_lies, reports.far_lies
        self._seed = seed
        self.by_setting = bool(self._of_types or self._of_sizes or self._of_slowdowns or self._type_lies)
        """Whether the factor on a rate depends on the size, the GPU type or the locality."""
        self._factors: dict[tuple[int, ...], float] = {}

    @property
    def any(self) -> bool:
        """Return whether any app reports a rate that is not the true one."""
        return self.by_setting or bool((self.times != 1.0).any())

    def time(self, app: int) -> float:
        """Return the factor on an app's iteration times."""
        return self._time[app]

    def pace(self, app: int, gpus: int, kind: int, locality: Locality, pace: float) -> float:
        """Return the reported seconds per iteration in a setting, from the true seconds per iteration."""
        pace = pace * self._time[app]
        if not self.by_setting:
            return pace
        pace *= self._drawn(_OF_TYPES, self._of_types, app, kind) * self._drawn(_OF_SIZES, self._of_sizes, app, gpus)
        if locality > Locality.MACHINE:
            pace *= self._drawn(_OF_SLOWDOWNS, self._of_slowdowns, app)
        return pace / self._type_lies.get(self._apps[app], {}).get(self._types[kind], 1.0)

    def slowdown(self, app: int, true: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """Return the reported slowdown S by locality; only S across machines has errors, and it is at least 1."""
        island, machine, rack, cluster = true
        far = self._far_lies.get(self._apps[app], 1.0) * self._drawn(_OF_SLOWDOWNS, self._of_slowdowns, app)
        return island, machine, max(1.0, rack * far), max(1.0, cluster * far)

    def _drawn(self, stream: int, error: float, *key: int) -> float:
        """Return a random factor from 1 - error to 1 + error, which is equal for equal arguments."""
        if error <= 0.0:
            return 1.0
        full = (stream, *key)
        if full not in self._factors:
            luck = np.random.default_rng([self._seed, *full])
            self._factors[full] = float(luck.uniform(1.0 - error, 1.0 + error))
        return self._factors[full]


def _within(error: float, drawn: Reals) -> Reals:
    """Map numbers from 0 to 1 to factors from 1 - error to 1 + error."""
    low, high = 1.0 - error, 1.0 + error
    return low + (high - low) * drawn
