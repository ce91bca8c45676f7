"""The public API for whole workloads: the demo, traces and generators, the simulator, metrics, the report.

Each public name is imported from its module on first use.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eunomia_testbed.example import write_example
    from eunomia_testbed.metrics.intervals import Interval, interval
    from eunomia_testbed.results.run_data import RunData
    from eunomia_testbed.running.result import SimulationResult, simulate
    from eunomia_testbed.simulator.options import Costs, Failures, Reports, SimulationOptions
    from eunomia_testbed.traces.reading import read_trace
    from eunomia_testbed.workload.workload import Workload

_MODULES = {
    "example": ("write_example",),
    "metrics.intervals": ("Interval", "interval"),
    "results.run_data": ("RunData",),
    "running.result": ("SimulationResult", "simulate"),
    "simulator.options": ("Costs", "Failures", "Reports", "SimulationOptions"),
    "traces.reading": ("read_trace",),
    "workload.workload": ("Workload",),
}
_HOME = {name: f"eunomia_testbed.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'eunomia_testbed' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)


__all__ = [
    "Costs",
    "Failures",
    "Interval",
    "Reports",
    "RunData",
    "SimulationOptions",
    "SimulationResult",
    "Workload",
    "interval",
    "read_trace",
    "simulate",
    "write_example",
]
