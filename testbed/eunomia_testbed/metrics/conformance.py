"""The test suite of metrics plugins: a plugin's test class inherits from it, and runs under pytest without fixtures.

```python
class TestTail(MetricsConformance):
    plugin = Tail
```

A failure names the plugin, the rule and the violating value.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np
import polars as pl

from eunomia.errors import EunomiaError
from eunomia.model.cluster import Cluster
from eunomia.platform.checking import check_plugin
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry
from eunomia_testbed.metrics.frames import frames_of
from eunomia_testbed.results.plugin_metrics import PluginMetric, metrics_of, with_metrics
from eunomia_testbed.simulator import simulate_one
from eunomia_testbed.workload import Workload


class MetricsConformance:
    """Base of a metrics plugin's test class, which sets ``plugin``.

    Attributes:
        plugin: the plugin's class; all its options need defaults.
    """

    plugin: ClassVar[type[Any]]

    def test_the_hook_has_the_expected_name_and_arguments(self) -> None:
        """Check name, API version, marks and parameters of the hook."""
        try:
            check_plugin(self.plugin, str(getattr(self.plugin, "name", "")))
        except EunomiaError as error:
            self._broken(str(error))

    def test_metrics_follow_the_rules(self) -> None:
        """Check names, tables, units and figures; the plugin lists at least one metric."""
        if not self._metrics():
            self._broken("eunomia_metrics must list a metric, but lists none")

    def test_every_row_gets_a_value(self) -> None:
        """Check that each metric has one value for each row, on a run of a few jobs, one of which never fits."""
        self._computed(_tables())

    def test_equal_tables_give_equal_values(self) -> None:
        """Check that two computations of a metric on equal tables give equal values."""
        tables = _tables()
        one, two = self._computed(tables), self._computed(tables)
        for name, values in one.items():
            if not values.equals(two[name]):
                self._broken(f'metric "{name}" must give equal values for equal tables')

    def test_a_run_without_rows_has_metrics(self) -> None:
        """Check that the tables of a run without events give empty columns."""
        self._computed({name: frame.clear() for name, frame in _tables().items()})

    def _metrics(self) -> tuple[PluginMetric, ...]:
        try:
            return metrics_of(Registry.find(installed=False).adding(self.plugin))
        except EunomiaError as error:
            self._broken(str(error))

    def _computed(self, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.Series]:
        """Return the plugin's columns by metric name, computed on the tables."""
        metrics = self._metrics()
        made = with_metrics(tables, metrics)
        try:
            return {each.metric.name: made[each.metric.table][each.metric.name] for each in metrics}
        except EunomiaError as error:
            self._broken(str(error))

    def _broken(self, what: str) -> NoReturn:
        raise AssertionError(f"{getattr(self.plugin, 'name', self.plugin.__name__)}: {what}")


def _tables() -> dict[str, pl.DataFrame]:
    """Return the tables of four jobs on two GPUs: one job waits, one is too large for the cluster."""
    workload = Workload.single_jobs(
        "conformance",
        ids=["a", "b", "c", "large"],
        users=["ana", "bob", "ana", "bob"],
        arrival_seconds=np.array([0.0, 0.0, 5.0, 6.0]),
        gpus=np.array([2, 1, 1, 64]),
        iterations=np.array([10.0, 10.0, 5.0, 5.0]),
        seconds_per_iteration=np.ones(4),
    )
    cluster = Cluster.parse("1x2 V100", place="cluster")
    run = simulate_one(workload, cluster, Profile.load("fifo", registry=Registry.find(installed=False)))
    return dict(frames_of(run, workload, cluster).tables.items())
