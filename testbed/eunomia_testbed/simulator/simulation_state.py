"""The state of a simulation, shared by its parts and passed to observers of the run."""

import dataclasses
from typing import Final

from eunomia.arbiter import Arbiter
from eunomia.contract.events import Event
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.units import Seconds
from eunomia_testbed.calls.notes import CallNotes
from eunomia_testbed.simulator.agenda import Agenda
from eunomia_testbed.simulator.apps.app_leases import AppLeases
from eunomia_testbed.simulator.apps.app_states import AppStates
from eunomia_testbed.simulator.apps.reporting import Reporter
from eunomia_testbed.simulator.executing.gpu_table import GpuTable
from eunomia_testbed.simulator.logs.logs import Logs
from eunomia_testbed.simulator.options import SimulationOptions
from eunomia_testbed.simulator.progress.states import JobStates
from eunomia_testbed.simulator.progress.truth import Speeds
from eunomia_testbed.simulator.progress.work import Work
from eunomia_testbed.simulator.workload_rows import WorkloadRows
from eunomia_testbed.workload import Workload

NOW_AT_FIRST: Final = Seconds(0.0)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class SimulationState:
    """The whole state of a simulation, by rows of the workload.

    Each part is changed only by the modules that carry out events: the engine, the executor and the app masters.
    """

    workload: Workload
    cluster: Cluster
    profile: Profile
    options: SimulationOptions
    seed: int
    arbiter: Arbiter
    """The arbiter of the live cluster, which learns about the simulation only through events."""
    speeds: Speeds
    agenda: Agenda
    logs: Logs
    jobs: JobStates
    work: Work
    reporter: Reporter
    gpus: GpuTable
    leases: AppLeases
    rows: WorkloadRows
    apps: AppStates
    notes: CallNotes
    """The record of the current plugin call."""
    now: Seconds = NOW_AT_FIRST
    out: list[Event] = dataclasses.field(default_factory=list)
    """Events that the arbiter has not received yet."""
    urgent: bool = False
    """Whether an event in ``out`` requires another step at this time."""

    def has_arrived(self, job: int) -> bool:
        """Return whether a job has arrived."""
        return self.rows.arrival[job] <= self.now
