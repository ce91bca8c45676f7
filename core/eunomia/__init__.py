"""Eunomia: fair, efficient and elastic sharing of GPU clusters among machine-learning applications.

These are the public names for plugins and scripts. Each is imported on first use, so that ``import eunomia`` loads no
solver, no torch and no pydantic.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from eunomia.contract.allocations import Allocation, AmountRange, DeviceShares, Grants, Pins, TimeShares
    from eunomia.contract.bundles import Bundle, ByBundle, MachineClasses, Part
    from eunomia.contract.by_curve import ByCurve
    from eunomia.contract.claims import Claims
    from eunomia.contract.contracts import Contract, Feature, Promise, Triggers
    from eunomia.contract.decisions import Decision
    from eunomia.contract.explanations import Explanation
    from eunomia.contract.index import Index, Queue
    from eunomia.contract.keys import Facts, Linear
    from eunomia.contract.memos import Memo
    from eunomia.contract.menus import ChangeCosts, CurvePoints, Menus, Probes, Regimes, curve_points
    from eunomia.contract.metrics import Metric
    from eunomia.contract.offers import Offer
    from eunomia.contract.options import Duration, PluginOptions, Share
    from eunomia.contract.placements import Placement, Retunes
    from eunomia.contract.pools import Pool, available
    from eunomia.contract.records import Record
    from eunomia.contract.snapshot import Snapshot
    from eunomia.contract.valuations import BySize, ByType, Form, LinearKey, OverTime, Scores, Valuations
    from eunomia.contract.verdicts import NO_VERDICTS, Reason, Verdicts, turned_down
    from eunomia.errors import EunomiaError, InputError, InputErrors, PluginError, UnreachableError
    from eunomia.hookspecs import hookimpl
    from eunomia.model.adaptations import Adaptation, Adaptations, Adapts, ComingRegime, Regime
    from eunomia.model.cluster import Cluster, Machine
    from eunomia.model.forecasts import Forecast, JobForecast, Phase
    from eunomia.model.kind_profiles import KnownRate
    from eunomia.model.leases import GpuState, Holdings
    from eunomia.model.space import Space
    from eunomia.model.workload import JobState
    from eunomia.platform.profiles import Profile
    from eunomia.units import NEVER, Basis, Cause, Locality, Misfit, Rest, Scope, Seconds, SizeUnit, Stage, Unit

_MODULES = {
    "contract.allocations": ("Allocation", "AmountRange", "DeviceShares", "Grants", "Pins", "TimeShares"),
    "contract.bundles": ("Bundle", "ByBundle", "MachineClasses", "Part"),
    "contract.by_curve": ("ByCurve",),
    "contract.claims": ("Claims",),
    "model.adaptations": ("Adaptation", "Adaptations", "Adapts", "ComingRegime", "Regime"),
    "model.cluster": ("Cluster", "Machine"),
    "contract.contracts": ("Contract", "Feature", "Promise", "Triggers"),
    "contract.decisions": ("Decision",),
    "errors": ("EunomiaError", "InputError", "InputErrors", "PluginError", "UnreachableError"),
    "contract.explanations": ("Explanation",),
    "model.forecasts": ("Forecast", "JobForecast", "Phase"),
    "model.kind_profiles": ("KnownRate",),
    "hookspecs": ("hookimpl",),
    "contract.index": ("Index", "Queue"),
    "contract.keys": ("Facts", "Linear"),
    "model.leases": ("GpuState", "Holdings"),
    "contract.memos": ("Memo",),
    "contract.menus": ("ChangeCosts", "CurvePoints", "Menus", "Probes", "Regimes", "curve_points"),
    "contract.metrics": ("Metric",),
    "contract.offers": ("Offer",),
    "contract.options": ("Duration", "PluginOptions", "Share"),
    "contract.placements": ("Placement", "Retunes"),
    "contract.pools": ("Pool", "available"),
    "platform.profiles": ("Profile",),
    "contract.records": ("Record",),
    "contract.snapshot": ("Snapshot",),
    "units": ("NEVER", "Basis", "Cause", "Locality", "Misfit", "Rest", "Scope", "Seconds", "SizeUnit", "Stage", "Unit"),
    "contract.valuations": ("ByType", "BySize", "Form", "LinearKey", "OverTime", "Scores", "Valuations"),
    "contract.verdicts": ("NO_VERDICTS", "Reason", "Verdicts", "turned_down"),
    "model.space": ("Space",),
    "model.workload": ("JobState",),
}
_HOME = {name: f"eunomia.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'eunomia' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)


__all__ = [
    "NEVER",
    "NO_VERDICTS",
    "Adaptation",
    "Adaptations",
    "Adapts",
    "Allocation",
    "AmountRange",
    "Basis",
    "Bundle",
    "ByBundle",
    "ByCurve",
    "BySize",
    "ByType",
    "Cause",
    "ChangeCosts",
    "Claims",
    "Cluster",
    "ComingRegime",
    "Contract",
    "CurvePoints",
    "Decision",
    "DeviceShares",
    "Duration",
    "EunomiaError",
    "Explanation",
    "Facts",
    "Feature",
    "Forecast",
    "Form",
    "GpuState",
    "Grants",
    "Holdings",
    "Index",
    "InputError",
    "InputErrors",
    "JobForecast",
    "JobState",
    "KnownRate",
    "Linear",
    "LinearKey",
    "Locality",
    "Machine",
    "MachineClasses",
    "Memo",
    "Menus",
    "Metric",
    "Misfit",
    "Offer",
    "OverTime",
    "Part",
    "Phase",
    "Pins",
    "Placement",
    "PluginError",
    "PluginOptions",
    "Pool",
    "Probes",
    "Profile",
    "Promise",
    "Queue",
    "Reason",
    "Record",
    "Regime",
    "Regimes",
    "Rest",
    "Retunes",
    "Scope",
    "Scores",
    "Seconds",
    "Share",
    "SizeUnit",
    "Snapshot",
    "Space",
    "Stage",
    "TimeShares",
    "Triggers",
    "Unit",
    "UnreachableError",
    "Valuations",
    "Verdicts",
    "__version__",
    "available",
    "curve_points",
    "hookimpl",
    "turned_down",
]
