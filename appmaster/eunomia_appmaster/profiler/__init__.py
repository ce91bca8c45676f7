"""Reads TensorBoard event files while they grow, and measures iteration rates from them."""

from eunomia_appmaster.profiler.findings import Finding, FindingKind
from eunomia_appmaster.profiler.log_folder import LogFolder, Poll, Series

__all__ = ["Finding", "FindingKind", "LogFolder", "Poll", "Series"]
