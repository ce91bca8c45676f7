"""The state of a simulation, shared by its parts and shown to observers of the run."""

import dataclasses
from typing import Final

from eunomia.contract.events import Event
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.round.arbiter import Arbiter
from eunomia.units import AppId, JobId, Seconds
from eunomia_testbed.calls.notes import CallNotes
from eunomia_testbed.simulator.agenda import Agenda
from eunomia_testbed.simulator.app_leases import AppLeases
from eunomia_testbed.simulator.app_masters import AppMaster
from eunomia_testbed.simulator.gpu_table import GpuTable
from eunomia_testbed.simulator.logs import Logs
from eunomia_testbed.simulator.options import SimulationOptions
from eunomia_testbed.simulator.reporting import Reporter
from eunomia_testbed.simulator.states import JobStates
from eunomia_testbed.simulator.truth import Speeds
from eunomia_testbed.simulator.work import Work
from eunomia_testbed.workload import Workload

NOW_AT_FIRST: Final = Seconds(0.0)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class SimulationState:
    """The whole state of a simulation, by rows of the workload.

    Each part is changed only by the modules that carry events out: the engine, the executor and the app masters.
    """

    workload: Workload
    cluster: Cluster
    profile: Profile
    options: SimulationOptions
    seed: int
    arbiter: Arbiter
    """The arbiter of the live cluster; it learns of the simulation through events only."""
    speeds: Speeds
    agenda: Agenda
    logs: Logs
    jobs: JobStates
    work: Work
    reporter: Reporter
    gpus: GpuTable
    leases: AppLeases
    job_ids: list[JobId]
    app_ids: list[AppId]
    job_rows: dict[str, int]
    """Job rows by id."""
    app_rows: dict[str, int]
    app_of: list[int]
    """By job, the row of its app."""
    arrival: list[float]
    """By job, in seconds."""
    app_finish: list[float]
    """By app, its end in seconds; NaN: the app has not ended."""
    notes: CallNotes
    """The plugin's call that is under way."""
    masters: dict[int, AppMaster] = dataclasses.field(default_factory=dict)
    """App masters of the apps that have one and have not ended."""
    now: Seconds = NOW_AT_FIRST
    out: list[Event] = dataclasses.field(default_factory=list)
    """Events that the arbiter has not received yet."""
    urgent: bool = False
    """Whether one of the events in ``out`` needs a step at this time."""

    def has_arrived(self, job: int) -> bool:
        """Whether a job has arrived."""
        return self.arrival[job] <= self.now

    def app_id_of(self, job: JobId) -> AppId:
        """Returns the app of a job."""
        return self.app_ids[self.app_of[self.job_rows[job]]]
