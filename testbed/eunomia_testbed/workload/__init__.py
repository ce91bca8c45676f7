"""Workloads: the users, apps and jobs of a trace or a generator, with their arrivals, as columns."""

from eunomia_testbed.workload.dropped import Dropped
from eunomia_testbed.workload.search import SimulatedSearch
from eunomia_testbed.workload.workload import AppColumns, JobColumns, Regime, UserColumns, Workload

__all__ = ["AppColumns", "Dropped", "JobColumns", "Regime", "SimulatedSearch", "UserColumns", "Workload"]
