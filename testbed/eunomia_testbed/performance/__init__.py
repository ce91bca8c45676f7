"""The true speeds of jobs: declared, measured or from an analytic model; plugins have no access to them.

Models and the readers of their files are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING

from eunomia_testbed.performance.names import known_of, knows
from eunomia_testbed.performance.speeds import ByAmounts, PerformanceModel, Setting

if TYPE_CHECKING:
    from eunomia_testbed.performance.analytic import AnalyticModel, Links
    from eunomia_testbed.performance.declared import DeclaredModel, DeclaredSpeeds
    from eunomia_testbed.performance.gavel import GavelThroughputs
    from eunomia_testbed.performance.measured import read_performance
    from eunomia_testbed.performance.scaling import AfsScaling, ElasticFlowTables
    from eunomia_testbed.performance.synergy import SynergyProfiles

_MODULES = {
    "analytic": ("AnalyticModel", "Links"),
    "declared": ("DeclaredModel", "DeclaredSpeeds"),
    "gavel": ("GavelThroughputs",),
    "measured": ("read_performance",),
    "scaling": ("AfsScaling", "ElasticFlowTables"),
    "synergy": ("SynergyProfiles",),
}
_HOME = {name: f"eunomia_testbed.performance.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'eunomia_testbed.performance' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


__all__ = [
    "AfsScaling",
    "AnalyticModel",
    "ByAmounts",
    "DeclaredModel",
    "DeclaredSpeeds",
    "ElasticFlowTables",
    "GavelThroughputs",
    "Links",
    "PerformanceModel",
    "Setting",
    "SynergyProfiles",
    "known_of",
    "knows",
    "read_performance",
]
