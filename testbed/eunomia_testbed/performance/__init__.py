"""How fast a job really is: declared, measured or from an analytic model. Ground truth: no plugin sees it."""

from eunomia_testbed.performance.analytic import AnalyticModel, Links
from eunomia_testbed.performance.declared import DeclaredModel, DeclaredSpeeds
from eunomia_testbed.performance.measured import (
    AfsScaling,
    ElasticFlowTables,
    GavelThroughputs,
    SynergyProfiles,
    read_performance,
)
from eunomia_testbed.performance.speeds import PerformanceModel, Setting, known_of

__all__ = [
    "AfsScaling",
    "AnalyticModel",
    "DeclaredModel",
    "DeclaredSpeeds",
    "ElasticFlowTables",
    "GavelThroughputs",
    "Links",
    "PerformanceModel",
    "Setting",
    "SynergyProfiles",
    "known_of",
    "read_performance",
]
