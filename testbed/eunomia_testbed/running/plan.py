"""The plan of a run: policies, seeds and loads as independent cells."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from eunomia.errors import EunomiaError, InputError
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds, value
from eunomia.platform.profiles import Profile
from eunomia_testbed.calls.limits import DEFAULT_LIMITS, CallLimits
from eunomia_testbed.evidence.draws import DrawKind, Draws, draws_of_seeds
from eunomia_testbed.metrics.fairness import UNFAIR_RHO
from eunomia_testbed.performance.speeds import PerformanceModel
from eunomia_testbed.results.assumptions import SpeedAssumption
from eunomia_testbed.results.facts import InputFile
from eunomia_testbed.running.peers import Peer
from eunomia_testbed.running.resamples import Resampling, smaller
from eunomia_testbed.running.windows import Windows
from eunomia_testbed.simulator import SimulationOptions
from eunomia_testbed.simulator.options import Reports
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.taking import original_of


@value
class Cell:
    """One simulation: a policy with a seed, at a load."""

    policy: str
    seed: int
    """The seed; for a resample or window, its number."""
    load: float = 1.0
    resampled: bool = False
    """Whether the workload is a resample or window of the trace, of which only metrics are kept."""

    @property
    def name(self) -> str:
        """Return the cell as text, such as ``las, seed 0`` or ``las, resample 17``."""
        return f"{self.label}, {'resample' if self.resampled else 'seed'} {self.seed}"

    @property
    def label(self) -> str:
        """Return the name of the policy in tables, followed by the load if it is not 1."""
        return self.policy if self.load == 1.0 else f"{self.policy} x{self.load:g}"

    @property
    def folder(self) -> str:
        """Return the folder name of the cell's files, which is unique in its plan."""
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", self.policy)
        return f"{plain}-x{self.load:g}-{'resample' if self.resampled else 'seed'}{self.seed}"


@builds
class Plan:
    """All cells of a run, with their workloads, profiles, cluster and options.

    Attributes:
        workloads: workloads by seed; one object for all seeds, or one generated for each.
        profiles: profiles by name, in the order in which policies are shown.
        loads: factors by which arrival times are divided.
        peer: the simulator that defines the round rules; the profiles follow these rules. None: Eunomia's rules.
        rho: the kind of rho by which apps are judged.
        csv: whether tables are also written as CSV.
        spec: the fields of the spec that differ from their defaults, for ``run.json``.
    """

    workloads: Mapping[int, Workload]
    cluster: Cluster
    cluster_text: str
    profiles: Mapping[str, Profile]
    loads: tuple[float, ...] = (1.0,)
    options: SimulationOptions = SimulationOptions()
    peer: Peer | None = None
    models: PerformanceModel | None = None
    rho: str = "themis"
    unfair_above: float = UNFAIR_RHO
    csv: bool = False
    inputs: tuple[InputFile, ...] = ()
    command: tuple[str, ...] = ()
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    assumptions: tuple[SpeedAssumption, ...] = ()
    """The assumptions on speeds that the speed source lacks."""
    resampling: Resampling | Windows | None = None
    """The resamples or windows of the trace, each simulated under every policy; None: the trace alone is simulated."""
    budget_seconds: float | None = None
    """CPU time of the run in all processes, within which resamples are simulated; None: no limit."""
    several_traces: bool = False
    """Whether the workloads are several traces of one cluster, by number, instead of workloads by seed."""
    limits: CallLimits = DEFAULT_LIMITS
    """Limits on the time of a plugin's call."""
    notes: tuple[str, ...] = ()
    """Sentences on the interaction of the plan's parts, for ``run.json`` and the report."""

    @property
    def draws(self) -> Draws:
        """Return the kind and number of draws in the runs of the traces or generated workloads."""
        if not self.several_traces:
            return draws_of_seeds(len(self.seeds))
        names = ", ".join(workload.name for workload in self.workloads.values())
        return Draws(kind=DrawKind.TRACES, count=len(self.workloads), source=names)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds, in order."""
        return tuple(self.workloads)

    def cells(self) -> list[Cell]:
        """Return all cells: by policy, load and seed, followed by the resamples by number and policy."""
        whole = [
            Cell(policy=policy, seed=seed, load=load)
            for policy in self.profiles
            for load in self.loads
            for seed in self.workloads
        ]
        count = 0 if self.resampling is None else self.resampling.count
        resampled = [
            Cell(policy=policy, seed=number, resampled=True)
            for number in range(1, count + 1)
            for policy in self.profiles
        ]
        return whole + resampled

    def repeats(self, cell: Cell) -> bool:
        """Return whether the cell has another seed than the first one, but the same workload."""
        first = self.seeds[0]
        return not cell.resampled and cell.seed != first and self.workloads[cell.seed] is self.workloads[first]

    def workload_of(self, cell: Cell) -> Workload:
        """Return the workload of a cell."""
        if cell.resampled and self.resampling is not None:
            return self.resampling.workload(self.workloads[self.seeds[0]], cell.seed)
        return sped_up(self.workloads[cell.seed], cell.load)

    def counted(self, cell: Cell) -> frozenset[str] | None:
        """Return the ids of the apps that count in a cell's metrics; None: all."""
        if not cell.resampled or self.resampling is None:
            return None
        return self.resampling.counted(self.workloads[self.seeds[0]], cell.seed)

    def options_of(self, workload: Workload, *, resampled: bool = False) -> SimulationOptions:
        """Return the options for a workload, with a peer's rules if the plan has any; resamples have fewer logs."""
        options = self.options
        if resampled:
            reports = self._reports_of(workload)
            options = dataclasses.replace(options, keep=smaller(options.keep), reports=reports)
        if self.peer is None:
            return options
        return dataclasses.replace(options, rules=self.peer.rules(workload, self.cluster, self.models))

    def _reports_of(self, workload: Workload) -> Reports:
        """Return the reports for a resample, in which copies of an app misreport like the original."""
        reports = self.options.reports
        if not (reports.lies or reports.type_lies or reports.far_lies):
            return reports
        known = set(self.workloads[self.seeds[0]].apps.id)
        drawn = {app: app if app in known else original_of(app) for app in workload.apps.id}
        return dataclasses.replace(
            reports,
            lies={app: reports.lies[name] for app, name in drawn.items() if name in reports.lies},
            type_lies={app: reports.type_lies[name] for app, name in drawn.items() if name in reports.type_lies},
            far_lies={app: reports.far_lies[name] for app, name in drawn.items() if name in reports.far_lies},
        )

    @property
    def jobs(self) -> int:
        """Return the number of jobs of the largest workload."""
        return max((workload.size for workload in self.workloads.values()), default=0)

    def check(self) -> None:
        """Check that the plan can run.

        Raises:
            InputError: there are no cells, two cells have the same name, a policy is unsuited, or a load is invalid.
        """
        cells = self.cells()
        if not cells:
            raise InputError("a simulation must have at least one policy and one seed", value="none")
        names = [cell.folder for cell in cells]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise InputError("policies must have different names", value=", ".join(twice), place="--policy")
        for profile in self.profiles.values():
            profile.stages(self.cluster)
        for load in self.loads:
            if not 0.0 < load < float("inf"):
                raise InputError("load must be a positive factor", value=f"{load:g}", place="--load")


@builds
class FailedCell:
    """A cell whose simulation failed, and its error."""

    cell: Cell
    error: EunomiaError


def sped_up(workload: Workload, load: float) -> Workload:
    """Return the workload with all arrival times divided by ``load``."""
    if load == 1.0:
        return workload
    jobs = dataclasses.replace(workload.jobs, arrival_seconds=workload.jobs.arrival_seconds / load)
    apps = dataclasses.replace(workload.apps, arrival_seconds=workload.apps.arrival_seconds / load)
    return dataclasses.replace(workload, jobs=jobs, apps=apps)


def labels_by_load(cells: Sequence[Cell]) -> dict[str, float]:
    """Return the load of each label, for loads other than 1."""
    return {cell.label: cell.load for cell in cells if cell.load != 1.0}
