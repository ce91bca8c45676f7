"""A finished simulation in Python: its tables as polars frames, its summary, its report in a notebook."""

import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_testbed.metrics.fairness import KINDS, UNFAIR_RHO
from eunomia_testbed.performance.speeds import PerformanceModel
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.running.many import run_plan
from eunomia_testbed.running.peers import Peer
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.simulator import SimulationOptions
from eunomia_testbed.workload import Workload

if TYPE_CHECKING:
    import polars as pl

    from eunomia_testbed.running.display import Display


class SimulationResult:
    """The result of ``simulate``.

    Frames hold the tables of all policies and seeds; their columns stand in ``docs/reference/results.md``.

    Args:
        folder: of the results.
        keeper: keeps a temporary folder as long as the result exists.
    """

    def __init__(self, folder: Path, keeper: object = None) -> None:
        self._folder, self._keeper = folder, keeper

    @functools.cached_property
    def run(self) -> RunData:
        """All tables, and the facts of the run."""
        return RunData.load(self._folder)

    @property
    def jobs(self) -> "pl.DataFrame":
        """A row a job."""
        return self.run.jobs

    @property
    def apps(self) -> "pl.DataFrame":
        """A row an app."""
        return self.run.apps

    @property
    def users(self) -> "pl.DataFrame":
        """A row a user."""
        return self.run.users

    @property
    def rounds(self) -> "pl.DataFrame":
        """A row a round."""
        return self.run.rounds

    @property
    def leases(self) -> "pl.DataFrame":
        """A row a GPU and lease."""
        return self.run.leases

    @property
    def waits(self) -> "pl.DataFrame":
        """A row a stretch of waiting."""
        return self.run.waits

    @property
    def records(self) -> Mapping[str, "pl.DataFrame"]:
        """The plugins' own records."""
        return self.run.records

    @functools.cached_property
    def metrics(self) -> "pl.DataFrame":
        """Every metric, a row a policy and seed, as in ``summary.csv``."""
        from eunomia_testbed.results.summary import summarise

        return summarise(self.run)

    def summary(self) -> "pl.DataFrame":
        """A row a policy: mean and 95 % interval over seeds of the metrics that policies are compared by."""
        from eunomia_testbed.running.summing import over_seeds

        return over_seeds(self.metrics)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the folder that ``eunomia simulate`` leaves, report included.

        Raises:
            InputError: it exists, and is not to be overwritten.
        """
        from eunomia_testbed.report import write_report
        from eunomia_testbed.results.folder import ResultFolder

        target = ResultFolder.create(Path(folder), overwrite=overwrite).path
        shutil.copytree(self._folder, target, dirs_exist_ok=True)
        write_report(target)
        return target

    def _repr_html_(self) -> str:
        """The report, as notebooks show it."""
        import html

        from eunomia_testbed.report.page import render

        page = html.escape(render(self.run), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 50rem; border: 0"></iframe>'

    def __repr__(self) -> str:
        """Policies and seeds."""
        facts = self.run.facts
        seeds = "" if facts is None else f", seeds {', '.join(map(str, facts.seeds))}"
        return f"SimulationResult({', '.join(dict.fromkeys(policy for policy, _ in self.run.runs()))}{seeds})"


def simulate(
    workload: Workload | Callable[[int], Workload],
    cluster: Cluster | str,
    policies: Sequence[str | Profile] = ("themis",),
    *,
    seeds: Iterable[int] = (0,),
    loads: Iterable[float] = (1.0,),
    options: SimulationOptions | None = None,
    models: PerformanceModel | None = None,
    rules: str | Peer | None = None,
    rho: str | None = None,
    unfair_above: float = UNFAIR_RHO,
    progress: bool = False,
    processes: int | None = None,
    tolerate_faults: bool = False,
) -> SimulationResult:
    """Simulates a workload on a cluster under policies, with each seed.

    Args:
        workload: a trace that was read, or a generator that makes one from a seed.
        cluster: or its short form, such as ``"4x8 V100"``.
        policies: presets, profile files, plugins or profiles.
        seeds: what all randomness follows from.
        loads: factors by which jobs arrive faster.
        options: costs, failures, what app masters report, a peer's rules; None: everything is free and honest.
        models: a performance model; None: speeds are what the workload tells.
        rules: a peer's round rules, such as ``"gavel"``.
        rho: the kind of rho to be judged by: ``themis``, ``static``, ``contention`` or ``exclusive``; None: ``themis``,
            but ``static`` under a peer's rules.
        unfair_above: rho above which an app counts as treated unfairly.
        progress: whether progress is shown on stderr.
        processes: how many to use; None: as many as are worth it.
        tolerate_faults: whether a run goes on after a plugin's fault; the fallback decides after several in a row.

    Raises:
        InputError: anything of this does not do.
        EunomiaError: a policy failed, such as with a fault of its plugin.
    """
    from eunomia.platform.cluster_file import ClusterFile, cluster_toml

    where = Cluster.parse(cluster, place="cluster") if isinstance(cluster, str) else cluster
    peer = Peer.named(rules) if isinstance(rules, str) else rules
    plan = Plan(
        workloads={int(seed): workload(int(seed)) if callable(workload) else workload for seed in seeds},
        cluster=where,
        cluster_text=cluster_toml(ClusterFile(cluster=where, bandwidth_gib={})),
        profiles={name: peer.under(each) if peer else each for name, each in _profiles(policies).items()},
        peer=peer,
        loads=tuple(loads),
        options=_tolerating(options or SimulationOptions(), tolerate_faults),
        models=models,
        rho=_kind(rho or ("static" if peer else "themis")),
        unfair_above=unfair_above,
        command=("simulate",),
    )
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


def _profiles(policies: Sequence[str | Profile]) -> dict[str, Profile]:
    made: dict[str, Profile] = {}
    for policy in policies:
        profile = policy if isinstance(policy, Profile) else Profile.load(policy, flag="policies")
        if profile.name in made:
            raise InputError("policies must have different names", value=f'"{profile.name}" twice', place="policies")
        made[profile.name] = profile
    return made


def _tolerating(options: SimulationOptions, tolerate_faults: bool) -> SimulationOptions:
    return dataclasses.replace(options, tolerate_faults=options.tolerate_faults or tolerate_faults)


def _kind(rho: str) -> str:
    if rho not in KINDS:
        raise InputError(f"rho must be one of {', '.join(KINDS)}", value=f'"{rho}"')
    return rho


def _display(plan: Plan) -> "Display":
    from eunomia_testbed.running.display import display

    return display(plan)
