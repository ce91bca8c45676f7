"""The nodes of a batch job that holds several: they start and end together, and the job may lose some of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from eunomia_engines.engine import EngineNode, NodeState
from eunomia_engines.pilots.records import CLEAN, Pilot, end_of, pilots
from eunomia_engines.slurm.programs import SlurmJob, SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, Request
from eunomia_engines.slurm.states import node_of

LEFT: Final = "its host has left the job"


def node_ids(job: str, count: int) -> Sequence[str]:
    """Return the ids of a job's nodes: the job's id, or with several nodes ``JOB-1``, ``JOB-2`` and so on."""
    return [job] if count == 1 else [f"{job}-{number}" for number in range(1, count + 1)]


def job_of_node(node: str) -> str:
    """Return the id of the job that holds a node."""
    return node.partition("-")[0]


class JobNodes:
    """Converts jobs of Slurm to nodes of the engine.

    Args:
        request: the request, with the number of nodes of a job.
        state: the arbiter's state folder, with the records of pilots.
        programs: calls Slurm's programs.
    """

    def __init__(self, request: Request, state: Path, programs: SlurmPrograms) -> None:
        self._count, self._folder, self._programs = request.nodes_per_job, state / FOLDER, programs
        self._hosts: dict[str, Sequence[str]] = {}
        """Hosts by the text with which Slurm names them."""

    def of(self, jobs: Sequence[SlurmJob]) -> Sequence[EngineNode]:
        """Return the nodes of all jobs.

        Raises:
            EngineSilentError: Slurm does not name the hosts of a job.
        """
        if self._count == 1:
            return [node_of(job) for job in jobs]
        begun = pilots(self._folder)
        return [node for job in jobs for node in self._several(job, begun)]

    def _several(self, job: SlurmJob, begun: Mapping[str, Pilot]) -> Sequence[EngineNode]:
        """Return the nodes of a job: as many as it asked for, of which some may have ended before the job.

        A node has the host that its pilot recorded, and before that a host of the job that no pilot has recorded.
        """
        whole, ids = node_of(job), node_ids(job.id, self._count)
        recorded = {each: begun[each].host for each in ids if each in begun}
        hosts = self._named(job.host) if whole.state is NodeState.RUNS else ()
        free = iter([host for host in hosts if host not in recorded.values()])
        nodes = [replace(whole, id=each, group=job.id, host=recorded.get(each) or next(free, "")) for each in ids]
        return [self._alone(node, hosts) for node in nodes] if whole.state is NodeState.RUNS else nodes

    def _alone(self, node: EngineNode, hosts: Sequence[str]) -> EngineNode:
        """Return a node of a running job, which may have ended although the job runs."""
        code = end_of(self._folder, node.id)
        if code is not None:
            words = "" if code == CLEAN else f" with code {code}"
            return replace(node, state=NodeState.ENDS, why=f"its launcher has ended{words}; its job runs")
        if node.host not in hosts:  # Slurm takes a node that fails out of a job
            return replace(node, state=NodeState.ENDED, why=LEFT)
        return node

    def _named(self, text: str) -> Sequence[str]:
        """Return the hosts in one of Slurm's host lists; one call of ``scontrol`` for each list of several."""
        if not any(sign in text for sign in ",["):
            return [text] if text else []
        if text not in self._hosts:
            self._hosts[text] = self._programs.hosts(text)
        return self._hosts[text]
