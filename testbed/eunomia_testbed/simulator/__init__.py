"""The simulator: runs workloads in virtual time under the arbiter that also runs the live cluster."""

from eunomia_testbed.simulator.assembly import assemble
from eunomia_testbed.simulator.engine import Engine
from eunomia_testbed.simulator.logs.observers import RunObserver
from eunomia_testbed.simulator.logs.run import SimulatedRun, Unfit
from eunomia_testbed.simulator.machine_changes import MachineChange
from eunomia_testbed.simulator.options import (
    Costs,
    Delays,
    Failures,
    Keep,
    Outage,
    Progress,
    Reports,
    SimulationOptions,
    WorkerFault,
)
from eunomia_testbed.simulator.rules import Rules
from eunomia_testbed.simulator.simulate import simulate_one
from eunomia_testbed.simulator.simulation_state import SimulationState

__all__ = [
    "Costs",
    "Delays",
    "Engine",
    "Failures",
    "Keep",
    "MachineChange",
    "Outage",
    "Progress",
    "Reports",
    "Rules",
    "RunObserver",
    "SimulatedRun",
    "SimulationOptions",
    "SimulationState",
    "Unfit",
    "WorkerFault",
    "assemble",
    "simulate_one",
]
