"""The engine of Slurm: a batch job of the user's own for each node, or for several that end together."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from eunomia.errors import EunomiaError
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_engines.engine import Engine, EngineFinding, EngineNode, EngineRefusedError, each_once
from eunomia_engines.pilots.records import PILOTS
from eunomia_engines.slurm.job_nodes import JobNodes, job_of_node, node_ids
from eunomia_engines.slurm.limits_check import SiteLimits, read_limits
from eunomia_engines.slurm.programs import NEEDED, SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, Request, node_job_name
from eunomia_engines.slurm.script import LOGS, job_script
from eunomia_engines.slurm.steps import NOTICE_SECONDS, AllocationEngine

log = structlog.get_logger()

SPREAD = 0.2
"""Largest fraction by which the times of nodes requested together are shortened, so that they do not end together."""


class SlurmEngine:
    """Requests nodes from Slurm by submitting batch jobs, each of one node or of as many as the request says.

    Args:
        request: the request of ``eunomia slurm up``.
        state: the arbiter's state folder.
        programs: calls Slurm's programs.
    """

    def __init__(self, request: Request, state: Path, programs: SlurmPrograms | None = None) -> None:
        self._request, self._state = request, state
        self._programs = programs or SlurmPrograms()
        self._nodes = JobNodes(request, state, self._programs)
        self._ordered: dict[str, float] = {}
        """Times at which jobs were first given back, by id, in seconds of the monotonic clock."""

    def nodes(self) -> Sequence[EngineNode]:
        """Return the nodes of this state folder's jobs, by one call of ``squeue``."""
        return each_once(self._nodes.of(self._programs.jobs([node_job_name(self._state)])))

    def ask(self, count: int) -> Sequence[str]:
        """Submit as many whole batch jobs as ``count`` nodes have, and return the nodes' ids.

        There are fewer where Slurm refuses a job after the first.
        """
        jobs = count // self._request.nodes_per_job
        made = self._submit(jobs) if jobs else ()
        return [node for job in made for node in node_ids(job, self._request.nodes_per_job)]

    def _submit(self, count: int) -> Sequence[str]:
        """Submit batch jobs, and return their ids; raises ``EngineRefusedError`` if Slurm refuses the first."""
        folder = self._state / FOLDER
        for name in (LOGS, PILOTS):
            (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        script, made = folder / "node.sh", []
        for index in range(count):
            seconds = self._request.seconds * (1.0 - SPREAD * index / count)
            script.write_text(job_script(self._request, self._state, seconds=seconds), encoding="utf-8")
            try:
                made.append(self._programs.submit(str(script)))
            except EngineRefusedError as error:
                if not made:
                    raise
                log.warning("nodes.refused", why=str(error), asked=count, submitted=len(made))
                break
        return made

    def give_back(self, node: str) -> None:
        """Withdraw a node's batch job from the queue, or signal its launchers to end; cancel a job that does not end.

        Slurm kills a cancelled job after its own ``KillWait``, which may be too short for workers to save.
        """
        name, job = node_job_name(self._state), job_of_node(node)
        first = self._ordered.setdefault(job, time.monotonic())
        notice = 0.0 if self._request.nodes_per_job == 1 else NOTICE_SECONDS
        if time.monotonic() - first > self._request.end_seconds + notice:
            self._programs.cancel(job, name)
        else:
            self._programs.withdraw(job, name)
            self._programs.signal(job, name)
            self._order_tasks(job)

    def _order_tasks(self, job: str) -> None:
        """Order the tasks of a job of several nodes to end, even if the host of the job's script has failed."""
        folder = self._state / FOLDER / PILOTS
        if self._request.nodes_per_job > 1 and any(folder.glob(f"{job}-*.json")):
            (folder / f"{job}.stop").touch(mode=0o600)


class SlurmKind:
    """Slurm, as ``eunomia engine check slurm`` finds it.

    Args:
        programs: calls Slurm's programs.
    """

    def __init__(self, programs: SlurmPrograms | None = None) -> None:
        self._programs = programs or SlurmPrograms()

    def check(self) -> Sequence[EngineFinding]:
        """Return which prerequisites of Slurm are found and which are missing; changes nothing and raises nothing."""
        return findings(self._programs)

    def engine(self, state: Path) -> Engine:
        """Return the engine of a state folder of ``eunomia slurm up``, or of ``eunomia serve --on slurm``.

        Raises:
            InputError: there is no request in the state folder.
        """
        return engine_of(Request.load(state), state, self._programs)

    def serve_allocation(self, flags: ServeFlags) -> int:
        """Serve on the nodes of the allocation in whose shell this runs; see ``taking``."""
        from eunomia_engines.slurm.taking import serve_allocation

        return serve_allocation(flags, os.environ, self._programs)


def engine_of(request: Request, state: Path, programs: SlurmPrograms | None = None) -> Engine:
    """Return the engine of a request: batch jobs, or steps of the user's own allocation."""
    if request.allocation:
        return AllocationEngine(request, state, programs)
    return SlurmEngine(request, state, programs)


def findings(programs: SlurmPrograms) -> Sequence[EngineFinding]:
    """Return which prerequisites of Slurm are found and which are missing, as lines of text."""
    missing = programs.missing()
    if missing:
        text = f"{', '.join(missing)} must be on this machine, a login node of the cluster or one of its nodes"
        return [EngineFinding(is_good=False, text=text)]
    found = [EngineFinding(is_good=True, text=f"programs: {', '.join(NEEDED)}")]
    try:
        found.append(EngineFinding(is_good=True, text=f"Slurm {programs.version()}"))
        for each in programs.nodes():
            gpus = ", ".join(f"{count} {kind or 'of any type'}" for kind, count in each.gpus.items()) or "no GPUs"
            limit = (
                "no limit of time" if each.limit_seconds is None else f"at most {each.limit_seconds / 3600:g} h a job"
            )
            count = f"{each.count} node{'' if each.count == 1 else 's'} {each.state}"
            nodes = f"{count}, each with {each.cpus} CPUs, {each.memory_mib} MiB, {gpus}"
            what = f"partition {each.partition}: {nodes}; {limit}"
            found.append(EngineFinding(is_good=each.is_up, text=what))
        found += [EngineFinding(is_good=True, text=text) for text in _limit_texts(read_limits(programs))]
    except EunomiaError as error:
        found.append(EngineFinding(is_good=False, text=str(error)))
    return found


def _limit_texts(limits: SiteLimits) -> Sequence[str]:
    """Return the site's limits that matter to a user's request, as lines of text."""
    found = [*limits.unknown, *_sizes(limits)]
    if limits.site is not None and limits.site.kill_wait_seconds is not None:
        seconds = limits.site.kill_wait_seconds
        found.append(f"KillWait {seconds:g} s: after scancel or a preemption, a checkpoint may take no longer")
        if limits.site.warns_preempted:
            found += [
                f"GraceTime {one.grace_seconds:g} s of partition {one.name} comes before it when a job is preempted"
                for one in limits.partitions
                if one.grace_seconds
            ]
    for one in limits.associations if limits.has_accounts else ():
        where = f" in partition {one.partition}" if one.partition else ""
        most = {"MaxJobs": one.most_jobs, "MaxSubmitJobs": one.most_submitted}
        counts = [f"{name} {most_jobs}" for name, most_jobs in most.items() if most_jobs is not None]
        hours = [] if one.most_seconds is None else [f"MaxWall {one.most_seconds / 3600:g} h"]
        tres = (
            [f"MaxTRES {','.join(f'{name}={most}' for name, most in one.most_tres.items())}"] if one.most_tres else []
        )
        found.append(f"account {one.account}{where}: {', '.join([*counts, *hours, *tres]) or 'no limits of its own'}")
    return found


def _sizes(limits: SiteLimits) -> Sequence[str]:
    """Return the partitions' limits on the number of nodes of a job, as lines of text."""
    found = []
    for one in limits.partitions:
        least = [] if (one.least_nodes or 0) <= 1 else [f"at least {one.least_nodes}"]
        most = [] if one.most_nodes is None else [f"at most {one.most_nodes}"]
        if least or most:
            found.append(f"a job in partition {one.name} has {' and '.join([*least, *most])} nodes (--nodes-per-job)")
    return found
