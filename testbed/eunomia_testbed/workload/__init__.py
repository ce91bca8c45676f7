"""Workloads: users, apps and jobs with their arrivals, as columns; from a trace or a generator."""

from eunomia_testbed.workload.dropped import Dropped
from eunomia_testbed.workload.search import SimulatedSearch
from eunomia_testbed.workload.workload import AppColumns, JobColumns, Regime, UserColumns, Workload

__all__ = ["AppColumns", "Dropped", "JobColumns", "Regime", "SimulatedSearch", "UserColumns", "Workload"]
