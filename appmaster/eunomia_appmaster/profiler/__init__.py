"""Reads TensorBoard event files while they grow, and measures iteration rates from them."""

from eunomia_appmaster.profiler.findings import Finding, FindingKind
from eunomia_appmaster.profiler.log_folder import LogFolder, Poll, Series
from eunomia_appmaster.profiler.rates import (
    STEP_SECONDS_TAG,
    Rate,
    RateBasis,
    Slowdown,
    Trim,
    measure_rates,
    slowdown_by_locality,
    slowdowns,
)

__all__ = [
    "STEP_SECONDS_TAG",
    "Finding",
    "FindingKind",
    "LogFolder",
    "Poll",
    "Rate",
    "RateBasis",
    "Series",
    "Slowdown",
    "Trim",
    "measure_rates",
    "slowdown_by_locality",
    "slowdowns",
]
