"""The head as a batch job without GPUs, with the next head's job behind it in Slurm's queue.

A serving head requests the next one with ``--dependency=singleton``: Slurm starts the next head once the previous one
has ended, for whatever reason. A head that never serves requests none, so that a failure is not repeated forever.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from eunomia_engines.engine import EngineNode, NodeState
from eunomia_engines.requests import mark_of
from eunomia_engines.slurm.programs import SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, Request, node_job_name
from eunomia_engines.slurm.script import LOGS, PATH, slurm_time
from eunomia_engines.slurm.states import node_of

SCRIPT: Final = "head.sh"
MADE: Final = "The head of an arbiter: it serves here until the job ends. Made by `eunomia slurm up`."
CPUS: Final = 2
MEMORY_MIB: Final = 1024
"""Memory of the head's job in MiB; the arbiter of a few hundred apps uses a third of it."""
SIGNAL_SECONDS: Final = 60
"""Seconds before the end of its job at which Slurm signals the head, which then ends gracefully."""


def head_job_name(state: Path) -> str:
    """Return the name of the jobs in which a state folder's heads run."""
    return f"eunomia-head-{mark_of(state)}"


def head_script(request: Request, state: Path) -> str:
    """Return the script of the head's batch job; it contains no token."""
    folder, whole = state / FOLDER, shlex.quote(str(state))
    options = {
        "job-name": head_job_name(state),
        "dependency": "singleton",
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(CPUS),
        "mem": f"{MEMORY_MIB}M",
        "time": slurm_time(request.seconds if request.head_seconds is None else request.head_seconds),
        "partition": request.head_partition or request.partition,
        "account": request.account,
        "qos": request.qos,
        "signal": f"B:TERM@{SIGNAL_SECONDS}",
        "output": f"{folder}/{LOGS}/head-%j.log",
        "open-mode": "append",
        "export": f"HOME,USER,LOGNAME,LANG,PATH={PATH}",
    }
    lines = [f"#SBATCH --{name}={shlex.quote(text)}" for name, text in options.items() if text]
    setup = [] if request.setup is None else [f". {shlex.quote(str(request.setup))} || exit 9"]
    body = [
        f"python={shlex.quote(request.python)}",
        *setup,
        "set +eu; trap - ERR EXIT  # whatever the setup file has set",
        'python="${EUNOMIA_PYTHON:-$python}"  # the setup file may name another one',
        f'"$python" -m eunomia_engines.slurm.head {whole} --job &',
        "child=$!",
        "trap 'kill -TERM \"$child\" 2>/dev/null' TERM INT",
        'wait "$child"; code=$?',
        'while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done  # a signal ends one wait alone',
        'exit "$code"',
    ]
    return "\n".join(["#!/bin/bash", f"# {MADE}", *lines, "#SBATCH --no-requeue", *body, ""])


class HeadJobs:
    """The batch jobs of a state folder's heads.

    Args:
        request: the request of ``eunomia slurm up``.
        state: the arbiter's state folder.
        programs: calls Slurm's programs.
    """

    def __init__(self, request: Request, state: Path, programs: SlurmPrograms) -> None:
        self._request, self._state, self._programs = request, state, programs
        self._name = head_job_name(state)

    def active(self) -> Sequence[EngineNode]:
        """Return the jobs that Slurm does not list as ended, including those in unknown states."""
        jobs = [node_of(job) for job in self._programs.jobs([self._name])]
        return [job for job in jobs if job.state is not NodeState.ENDED]

    def active_nodes(self) -> Sequence[EngineNode]:
        """Return the jobs of nodes that Slurm does not list as ended."""
        jobs = [node_of(job) for job in self._programs.jobs([node_job_name(self._state)])]
        return [job for job in jobs if job.state is not NodeState.ENDED]

    def ask(self) -> str:
        """Submit a head's job, and return its id."""
        folder = self._state / FOLDER
        (folder / LOGS).mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / SCRIPT
        path.write_text(head_script(self._request, self._state), encoding="utf-8")
        return self._programs.submit(str(path))

    def ask_for_next(self) -> str | None:
        """Submit the job of the next head unless one waits in the queue; returns the job's id; None: one waits."""
        waits = any(job.state is NodeState.ASKED for job in self.active())
        return None if waits else self.ask()

    def end(self) -> None:
        """Withdraw the heads that wait in the queue, and signal the running one to end gracefully."""
        for job in self.active():
            self._programs.withdraw(job.id, self._name)
        for job in self.active():
            self._programs.signal(job.id, self._name)

    def kill(self) -> None:
        """Cancel all heads; Slurm kills them after its ``KillWait``."""
        for job in self.active():
            self._programs.cancel(job.id, self._name)
