"""Eunomia: fair, efficient and elastic sharing of GPU clusters among machine-learning applications.

These are the public names for plugins and scripts. Each is imported on first use, so that ``import eunomia`` loads no
solver, no torch and no pydantic.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from eunomia.allocations import Allocation, AmountRange, DeviceShares, Grants, Pins, TimeShares
    from eunomia.bundles import Bundle, ByBundle, MachineClasses, Part
    from eunomia.claims import Claims
    from eunomia.cluster import Cluster, Machine
    from eunomia.contracts import Contract, Feature, Promise, Triggers
    from eunomia.decisions import Decision
    from eunomia.errors import EunomiaError, InputError, InputErrors, PluginError, UnreachableError
    from eunomia.explanations import Explanation
    from eunomia.forecasts import Forecast, JobForecast, Phase
    from eunomia.hookspecs import hookimpl
    from eunomia.leases import GpuState, Holdings
    from eunomia.memos import Memo
    from eunomia.menus import ChangeCosts, CurvePoints, Menus, Probes, Regimes, curve_points
    from eunomia.offers import Offer
    from eunomia.options import Duration, PluginOptions, Share
    from eunomia.placements import Placement
    from eunomia.pools import Pool, available
    from eunomia.profiles import Profile
    from eunomia.records import Record
    from eunomia.snapshot import Snapshot
    from eunomia.units import (
        NEVER,
        Basis,
        Cause,
        Locality,
        Misfit,
        Rest,
        Scope,
        Seconds,
        Stage,
        Unit,
    )
    from eunomia.valuations import BySize, ByType, Form, OverTime, Scores, Valuations
    from eunomia.verdicts import NO_VERDICTS, Reason, Verdicts, turned_down
    from eunomia.workload import JobState

_MODULES = {
    "allocations": ("Allocation", "AmountRange", "DeviceShares", "Grants", "Pins", "TimeShares"),
    "bundles": ("Bundle", "ByBundle", "MachineClasses", "Part"),
    "claims": ("Claims",),
    "cluster": ("Cluster", "Machine"),
    "contracts": ("Contract", "Feature", "Promise", "Triggers"),
    "decisions": ("Decision",),
    "errors": ("EunomiaError", "InputError", "InputErrors", "PluginError", "UnreachableError"),
    "explanations": ("Explanation",),
    "forecasts": ("Forecast", "JobForecast", "Phase"),
    "hookspecs": ("hookimpl",),
    "leases": ("GpuState", "Holdings"),
    "memos": ("Memo",),
    "menus": ("ChangeCosts", "CurvePoints", "Menus", "Probes", "Regimes", "curve_points"),
    "offers": ("Offer",),
    "options": ("Duration", "PluginOptions", "Share"),
    "placements": ("Placement",),
    "pools": ("Pool", "available"),
    "profiles": ("Profile",),
    "records": ("Record",),
    "snapshot": ("Snapshot",),
    "units": ("NEVER", "Basis", "Cause", "Locality", "Misfit", "Rest", "Scope", "Seconds", "Stage", "Unit"),
    "valuations": ("ByType", "BySize", "Form", "OverTime", "Scores", "Valuations"),
    "verdicts": ("NO_VERDICTS", "Reason", "Verdicts", "turned_down"),
    "workload": ("JobState",),
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
    "Allocation",
    "AmountRange",
    "Basis",
    "Bundle",
    "ByBundle",
    "BySize",
    "ByType",
    "Cause",
    "ChangeCosts",
    "Claims",
    "Cluster",
    "Contract",
    "CurvePoints",
    "Decision",
    "DeviceShares",
    "Duration",
    "EunomiaError",
    "Explanation",
    "Feature",
    "Forecast",
    "Form",
    "GpuState",
    "Grants",
    "Holdings",
    "InputError",
    "InputErrors",
    "JobForecast",
    "JobState",
    "Locality",
    "Machine",
    "MachineClasses",
    "Memo",
    "Menus",
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
    "Reason",
    "Record",
    "Regimes",
    "Rest",
    "Scope",
    "Scores",
    "Seconds",
    "Share",
    "Snapshot",
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
