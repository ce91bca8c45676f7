"""The engine of a user's existing allocation: each node is a step of the allocation instead of a batch job."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_engines.engine import EngineNode, NodeState
from eunomia_engines.pilots.records import PILOTS, pilots
from eunomia_engines.slurm.programs import SlurmJob, SlurmPrograms, SlurmStep
from eunomia_engines.slurm.request import FOLDER, Request, node_job_name
from eunomia_engines.slurm.script import LOGS, PATH, PILOT_ID, step_script
from eunomia_engines.slurm.states import STATES

LEAST_PAUSE_SECONDS: Final = 10.0
"""Seconds between two steps on one host."""
NOTICE_SECONDS: Final = 60.0
"""Seconds within which a step sees the order to end, a file on shared storage."""
NODE_JOB: Final = "eunomia-node-"
"""Prefix of the names of all nodes' steps, of any state folder."""

Spawn = Callable[[Sequence[str], Path], "subprocess.Popen[bytes]"]


@value
class Started:
    """A step that this process has started.

    Attributes:
        host: Slurm's name of the host.
        process: the step's ``srun``.
        at: Unix time in seconds of the start.
    """

    host: str
    process: "subprocess.Popen[bytes]"
    at: float

    @property
    def waits(self) -> bool:
        """Whether the step may still start."""
        return self.process.poll() is None


class AllocationEngine:
    """Starts a step on each host of an allocation, and another one after a step has ended.

    ``srun`` runs in its own session and outlives this process; a later engine finds the step by name.

    Args:
        request: the request, with the allocation's id.
        state: the arbiter's state folder.
        programs: calls Slurm's programs.
        spawn: starts a command whose output goes to a file.
    """

    def __init__(
        self, request: Request, state: Path, programs: SlurmPrograms | None = None, spawn: Spawn | None = None
    ) -> None:
        self._request, self._state = request, state
        self._programs = programs or SlurmPrograms()
        self._spawn = spawn or spawn_apart
        self._started: dict[str, Started] = {}
        """Steps that this process has started, by the node's id."""
        self._ordered: dict[str, float] = {}
        """Times at which steps were first given back, by id, in seconds of the monotonic clock."""
        self.is_over = False
        """Whether Slurm has reported that the allocation has ended, or no longer lists it."""

    def nodes(self) -> Sequence[EngineNode]:
        """Return the steps of the allocation that hold nodes, in two calls of ``squeue``."""
        job = self._programs.allocation(self._request.allocation)
        self.is_over = job is None or STATES.get(job.state) is NodeState.ENDED
        listed = {} if job is None else self._listed()
        found = [_node(name, NodeState.RUNS, step.host, job) for name, step in listed.items()]
        for name, one in self._started.items():
            if name not in listed:
                state = NodeState.ASKED if one.waits and not self.is_over else NodeState.ENDED
                found.append(_node(name, state, one.host, job, asked_at=one.at))
        return found

    def ask(self, count: int) -> Sequence[str]:
        """Start at most ``count`` steps on hosts without one, and return their ids; none unless the allocation runs."""
        job = self._programs.allocation(self._request.allocation)
        if job is None or STATES.get(job.state) is not NodeState.RUNS:
            return ()
        folder = self._state / FOLDER
        for name in (LOGS, PILOTS):
            (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "step.sh").write_text(step_script(self._request, self._state), encoding="utf-8")
        busy = {step.host for step in self._listed().values()}
        free = [host for host in self._programs.hosts(job.host) if host not in busy and self._may_begin(host)]
        return [self._start(host) for host in free[:count]]

    def give_back(self, node: str) -> None:
        """Order a step's launcher to end; a step that does not end in time is killed through Slurm."""
        step = self._listed().get(node)
        if step is None:
            if node in self._started and self._started[node].waits:
                self._started[node].process.terminate()
            return
        first = self._ordered.setdefault(node, time.monotonic())
        if time.monotonic() - first > self._request.end_seconds + NOTICE_SECONDS:
            self._programs.kill_step(step.id)
        else:
            (self._state / FOLDER / PILOTS / f"{node}.stop").touch(mode=0o600)

    def _listed(self) -> dict[str, SlurmStep]:
        """Return the steps of this state folder's nodes, by the node's id."""
        prefix = f"{node_job_name(self._state)}-"
        steps = [step for step in self._programs.steps(self._request.allocation) if step.name.startswith(prefix)]
        return {f"{self._request.allocation}.{step.host}.{step.name.removeprefix(prefix)}": step for step in steps}

    def _may_begin(self, host: str) -> bool:
        """Return whether every step that this process started on a host has started or ended, and not just now."""
        mine = [one for one in self._started.values() if one.host == host]
        return all(not one.waits and time.time() - one.at > LEAST_PAUSE_SECONDS for one in mine)

    def _start(self, host: str) -> str:
        """Start a step on a host, under an unused number, and return the node's id."""
        folder, job = self._state / FOLDER, self._request.allocation
        known = [*self._started, *pilots(folder), *(path.stem for path in (folder / PILOTS).glob("*.end"))]
        before = [name.removeprefix(f"{job}.{host}.") for name in known if name.startswith(f"{job}.{host}.")]
        number = max((int(text) for text in before if text.isdecimal()), default=0) + 1
        name = f"{job}.{host}.{number}"
        command = [
            *("srun", f"--jobid={job}", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--mem=0"),
            *("--nodes=1", "--ntasks=1", f"--nodelist={host}", f"--job-name={node_job_name(self._state)}-{number}"),
            f"--export=HOME,USER,LOGNAME,LANG,PATH={PATH},{PILOT_ID}={name}",
            *("bash", str(folder / "step.sh")),
        ]
        process = self._spawn(command, folder / LOGS / f"{name}.log")
        self._started[name] = Started(host=host, process=process, at=time.time())
        return name


def others(steps: Sequence[SlurmStep], state: Path) -> Sequence[SlurmStep]:
    """Return the steps of an allocation that hold nodes of another arbiter."""
    own = node_job_name(state)
    return [step for step in steps if step.name.startswith(NODE_JOB) and not step.name.startswith(own)]


def running_allocation(job: str, programs: SlurmPrograms) -> SlurmJob:
    """Return the running allocation with this job id.

    Raises:
        InputError: no such allocation runs; the shell's variables may be those of a job that has ended.
        EngineSilentError: Slurm does not answer.
    """
    found = programs.allocation(job)
    if found is None or STATES.get(found.state) is not NodeState.RUNS:
        rule = "serve --on slurm must be typed within an allocation that runs (salloc, or a batch job)"
        raise InputError(rule, value=f"SLURM_JOB_ID={job}: {'not known' if found is None else found.state}")
    return found


def spawn_apart(command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """Start a command in its own session, with its output in a file.

    Raises:
        InputError: its program is not on this machine.
    """
    try:
        with log.open("ab") as out:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    except OSError as error:
        rule = f"{command[0]} must be here: this command runs where Slurm's programs are"
        raise InputError(rule, value=error.strerror or str(error)) from None


def _node(name: str, state: NodeState, host: str, job: SlurmJob | None, *, asked_at: float | None = None) -> EngineNode:
    runs = state is NodeState.RUNS
    return EngineNode(
        id=name,
        state=state,
        why="its step starts" if state is NodeState.ASKED else "",
        host=host,
        asked_at=asked_at,
        began_at=None if job is None or state is NodeState.ASKED else job.began_at,
        ends_at=job.ends_at if runs and job is not None else None,
    )
