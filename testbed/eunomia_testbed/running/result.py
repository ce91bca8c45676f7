"""The results of a finished simulation in Python: tables as polars frames, summary, and a report for notebooks."""

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_testbed.performance.speeds import PerformanceModel
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.running.many import run_plan
from eunomia_testbed.running.peers import Peer
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.simulator import SimulationOptions
from eunomia_testbed.spec.planning import plan_of
from eunomia_testbed.spec.simulation import spec_of
from eunomia_testbed.workload import Workload

if TYPE_CHECKING:
    import polars as pl

    from eunomia_testbed.running.display import Display


class SimulationResult:
    """The result of ``simulate``.

    Frames hold the tables of all policies and seeds; ``docs/reference/results.md`` describes their columns.

    Args:
        folder: folder of the results.
        keeper: an object, such as a ``TemporaryDirectory``, that keeps the folder as long as the result exists.
    """

    def __init__(self, folder: Path, keeper: object = None) -> None:
        self._folder, self._keeper = folder, keeper

    @functools.cached_property
    def run(self) -> RunData:
        """Return all tables of the run, with its facts."""
        return RunData.load(self._folder)

    @property
    def jobs(self) -> "pl.DataFrame":
        """Return the table of jobs: a row for each policy, seed and job."""
        return self.run.jobs

    @property
    def apps(self) -> "pl.DataFrame":
        """Return the table of apps: a row for each policy, seed and app."""
        return self.run.apps

    @property
    def users(self) -> "pl.DataFrame":
        """Return the table of users: a row for each policy, seed and user."""
        return self.run.users

    @property
    def rounds(self) -> "pl.DataFrame":
        """Return the table of rounds: a row for each policy, seed and round."""
        return self.run.rounds

    @property
    def leases(self) -> "pl.DataFrame":
        """Return the table of leases: a row for each period in which a lease held a GPU."""
        return self.run.leases

    @property
    def waits(self) -> "pl.DataFrame":
        """Return the table of waits: a row for each period in which a job waited for one reason."""
        return self.run.waits

    @property
    def records(self) -> Mapping[str, "pl.DataFrame"]:
        """Return the tables of plugins' own records, by plugin name."""
        return self.run.records

    @functools.cached_property
    def metrics(self) -> "pl.DataFrame":
        """Return every metric, with a row for each policy and seed, as in ``summary.csv``."""
        from eunomia_testbed.results.summary import summarise

        return summarise(self.run)

    def summary(self) -> "pl.DataFrame":
        """Return a row for each policy, with value and 95 % interval of the metrics that compare policies."""
        from eunomia_testbed.evidence.evidence import evidence_of
        from eunomia_testbed.running.summing import over_seeds

        return over_seeds(self.metrics, evidence_of(self.run.facts, self.metrics, self.run.resamples))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the same folder as ``eunomia simulate``, including the report.

        Raises:
            InputError: the folder exists and ``overwrite`` is not set.
        """
        from eunomia_testbed.report import write_report
        from eunomia_testbed.results.folder import ResultFolder

        target = ResultFolder.create(Path(folder), overwrite=overwrite).path
        shutil.copytree(self._folder, target, dirs_exist_ok=True)
        write_report(target)
        return target

    def _repr_html_(self) -> str:
        """Return the report as HTML for notebooks."""
        import html

        from eunomia_testbed.report.page import render

        page = html.escape(render(self.run), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 50rem; border: 0"></iframe>'

    def __repr__(self) -> str:
        """Return the class name with policies and seeds."""
        facts = self.run.facts
        seeds = "" if facts is None else f", seeds {', '.join(map(str, facts.seeds))}"
        return f"SimulationResult({', '.join(dict.fromkeys(policy for policy, _ in self.run.runs()))}{seeds})"


class SimulationKeywords(TypedDict, total=False):
    """Keywords of ``simulate``: the fields of ``SimulationSpec``, and how to execute the runs."""

    seeds: Iterable[int] | str
    """Seeds of all randomness: numbers, or text such as ``"0-4"``; by default 0."""
    resample: int | None
    """Number of resamples of the trace, at least 39; None: none."""
    block: str | None
    """Block of a resample: a number of apps, or a time such as ``"1d"``; None: automatic."""
    budget: str | None
    """CPU time within which resamples are simulated, such as ``"10m"``; None: no limit."""
    windows: int | None
    """Number of consecutive windows into which the trace is cut; None: none."""
    loads: Iterable[float] | str
    """Factors by which arrival times are divided; by default 1."""
    settings: Sequence[str]
    """Settings ``KEY=VALUE`` that override those of each profile."""
    options: SimulationOptions | None
    """Costs, failures and reports of app masters; None: they are given by the fields from ``cost`` to ``until``."""
    cost: Sequence[str]
    """Costs of changes such as ``["start=20s"]``; by default every change is free."""
    failures: str | None
    machines_plan: str | None
    """A CSV file of machines that join, drain and leave the cluster."""
    know: str | None
    error: float
    lie: Sequence[str]
    agents: bool
    until: str | None
    models: PerformanceModel | None
    """A performance model; None: that of ``speeds``, or else the speeds of the workload."""
    speeds: str | None
    """A file or folder of measured speeds, ``"analytic"``, or ``"equal"`` (all GPU types are equally fast)."""
    unknown_models: Sequence[str]
    """Speeds for models that ``speeds`` lacks: ``["ResNet-50"]`` (that model's), ``["equal"]``, ``["drop"]``, or by
    model ``["own-net=equal"]``."""
    rules: str | Peer | None
    """A peer's round rules, such as ``"gavel"``."""
    rule: Sequence[str]
    rho: str | None
    """The kind of rho by which apps are judged: ``themis``, ``static``, ``contention`` or ``exclusive``; None:
    ``themis``, but ``static`` under a peer's rules."""
    unfair_above: float
    """The rho above which an app counts as treated unfairly."""
    plain: bool
    call_cpu: str
    """Limit on the CPU time of one call of a plugin, by default ``"60s"``."""
    call_wall: str
    """Limit on the wall time of one call of a plugin, by default ``"600s"``."""
    tolerate_faults: bool
    """Whether a run continues after a plugin's fault; the fallback decides after several faults in a row."""
    progress: bool
    """Whether progress is shown on stderr."""
    processes: int | None
    """Number of processes; None: as many as save time."""


def simulate(
    workload: Workload | Sequence[Workload] | Callable[[int], Workload],
    cluster: Cluster | str,
    policies: Sequence[str | Profile] = ("themis",),
    **spec: Unpack[SimulationKeywords],
) -> SimulationResult:
    """Simulate a workload on a cluster under each policy with each seed.

    Args:
        workload: a trace, several traces of one cluster (independent draws, numbered from 0 in the column ``seed``), or
            a function that returns a workload for a seed.
        cluster: a cluster, its short form such as ``"4x8 V100"``, or a cluster file.
        policies: presets, profile files, plugins or profiles.
        spec: fields of ``SimulationSpec``, with the meaning of the flags of ``eunomia simulate``; see
            ``SimulationKeywords``.

    Raises:
        InputError: a value is invalid, or two values contradict each other.
        EunomiaError: a policy failed, for example by an exception of its plugin.
    """
    given: dict[str, Any] = {"workload": workload, "cluster": cluster, "policies": policies, **spec}
    progress, processes = given.pop("progress", False), given.pop("processes", None)
    plan, _ = plan_of(spec_of(given))
    keeper = tempfile.TemporaryDirectory(prefix="eunomia-simulate-")
    folder = Path(keeper.name) / "run"
    watch = _display(plan) if progress else None
    try:
        outcome = run_plan(plan, folder, processes=processes, report=False, watch=watch)
    finally:
        if watch is not None:
            watch.close()
    if outcome.ended == "interrupted":
        raise KeyboardInterrupt
    if outcome.failed:
        raise outcome.failed[0]
    return SimulationResult(folder, keeper)


def _display(plan: Plan) -> "Display":
    from eunomia_testbed.running.display import display

    return display(plan)
