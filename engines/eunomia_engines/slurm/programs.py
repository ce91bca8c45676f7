"""Calls Slurm's programs (``sbatch``, ``squeue``, ``scancel``, ``sinfo``) and parses their output.

Nothing is installed on the cluster, and the permission to submit jobs suffices. Formats are those of ``squeue
--format``, which are the same from 20.11 to 24.05 according to the manuals; 22.05.8 was tested.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_engines.engine import EngineRefusedError, EngineSilentError

NEEDED: Final = ("sbatch", "squeue", "scancel", "sinfo")
CALL_SECONDS: Final = 60.0
"""Seconds after which a program of Slurm counts as silent; the program itself repeats its request for a while."""
JOB_FORMAT: Final = "%i|%T|%j|%P|%N|%V|%S|%e|%r"
"""Id, state, name, partition, nodes, submitted, start, end, reason; the reason is last, as it may hold any text."""
STEP_FORMAT: Final = "%i|%N|%j"
"""Id, node, name of a step; the name is last, as it may hold any text."""
PARTITION_FORMAT: Final = "%P|%a|%l|%D|%c|%m|%T|%G"
"""Partition, availability, time limit, nodes, CPUs and MiB of a node, state, GRES."""
OVER: Final = ("invalid job id", "already completing or completed")
"""Messages of ``scancel`` and ``squeue`` about a job that has ended, in lower case."""
SILENCES: Final = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "zero bytes were transmitted or received",
    "slurm backup controller in standby mode",
    "could not establish a configuration source",
)
"""Messages of programs if the controller does not answer, in lower case; any other message is a refusal."""


@value
class SlurmJob:
    """A line of ``squeue``; times are Unix times in seconds, None if Slurm prints none."""

    id: str
    state: str
    name: str
    partition: str
    host: str
    submitted_at: float | None
    began_at: float | None
    ends_at: float | None
    reason: str


@value
class SlurmStep:
    """A line of ``squeue --steps``: a running step of a job."""

    id: str
    name: str
    host: str


@value
class SlurmNodes:
    """A line of ``sinfo``: identical nodes of a partition.

    Attributes:
        limit_seconds: the partition's limit on a job's time in seconds; None: there is none.
        gpus: number of GPUs of one node, by type; the type is empty if Slurm prints none.
    """

    partition: str
    is_default: bool
    is_up: bool
    limit_seconds: float | None
    count: int
    cpus: int
    memory_mib: int
    state: str
    gpus: Mapping[str, int]


Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def run_program(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a program of Slurm so that it prints Unix times and English messages, without the user's own formats."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("SQUEUE_", "SINFO_", "SCONTROL_"))}
    env = {**own, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, timeout=CALL_SECONDS, env=env
    )


class SlurmPrograms:
    """Calls Slurm's programs.

    Args:
        run: runs a command line to its end.
        which: returns the path of a program; None: it is not on this machine.
    """

    def __init__(self, run: Run = run_program, which: Callable[[str], str | None] = shutil.which) -> None:
        self._run, self._which = run, which

    def missing(self) -> Sequence[str]:
        """Return Slurm's programs that are not on this machine."""
        return [name for name in NEEDED if self._which(name) is None]

    def version(self) -> str:
        """Return the version of the programs on this machine, such as ``22.05.8``."""
        text = self._call(["sinfo", "--version"]).strip()
        found = re.search(r"\d+\.\d+(\.\d+)?\S*", text)
        return found.group(0) if found else text

    def jobs(self, names: Sequence[str]) -> Sequence[SlurmJob]:
        """Return this user's jobs with these names, including ended ones that Slurm still lists."""
        who = str(os.getuid())
        command = ["squeue", "--noheader", "--states=all", f"--user={who}", f"--name={','.join(names)}"]
        return [job_of(line) for line in self._call([*command, f"--format={JOB_FORMAT}"]).splitlines() if line.strip()]

    def allocation(self, job: str) -> SlurmJob | None:
        """Return a job of this user by its id, with the list of its nodes as host; None: Slurm no longer lists it."""
        command = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}", f"--jobs={job}"]
        made = self._program([*command, f"--format={JOB_FORMAT}"])
        if made.returncode != 0 and any(over in made.stderr.lower() for over in OVER):
            return None
        if made.returncode != 0:
            raise _fault(command, made)
        found = [job_of(line) for line in made.stdout.splitlines() if line.strip()]
        return next((one for one in found if one.id == job), None)

    def steps(self, job: str) -> Sequence[SlurmStep]:
        """Return the running steps of a job; none if the job has ended."""
        made = self._program(["squeue", "--noheader", "--steps", f"--jobs={job}", f"--format={STEP_FORMAT}"])
        if made.returncode != 0 and any(over in made.stderr.lower() for over in OVER):
            return ()
        if made.returncode != 0:
            raise _fault(["squeue", "--steps"], made)
        return [step_of(line) for line in made.stdout.splitlines() if line.strip()]

    def hosts(self, names: str) -> Sequence[str]:
        """Return the hosts in one of Slurm's host lists, such as ``gpu[1-3]``."""
        return self._call(["scontrol", "show", "hostnames", names]).split()

    def kill_step(self, step: str) -> None:
        """Kill all processes of a step; no effect on a step that has ended."""
        made = self._program(["scancel", "--signal=KILL", step])
        if made.returncode != 0 and not any(over in made.stderr.lower() for over in OVER):
            raise _fault(["scancel", step], made)

    def nodes(self) -> Sequence[SlurmNodes]:
        """Return the nodes of all partitions that are visible to this user."""
        lines = self._call(["sinfo", "--noheader", f"--format={PARTITION_FORMAT}"]).splitlines()
        return [nodes_of(line) for line in lines if line.strip()]

    def read(self, *command: str) -> str:
        """Return the output of a read-only command: ``scontrol show`` or ``sacctmgr show``.

        Raises:
            EngineRefusedError: the program refuses; the error contains its message.
            EngineSilentError: the program does not answer.
            InputError: the program is not on this machine.
        """
        return self._call(command)

    def submit(self, script: str, *, only_test: bool = False) -> str:
        """Submit a batch job and return its id; with ``only_test``, return the result of Slurm's check.

        Args:
            script: path of the job script.
            only_test: whether Slurm only checks the job, without a submission.
        """
        options = ["--test-only"] if only_test else ["--parsable"]
        made = self._done(["sbatch", *options, script])
        said = made.stderr.strip() or made.stdout.strip()
        if only_test:
            return said
        found = made.stdout.strip().partition(";")[0]  # "4711" or "4711;cluster"
        if not found.isdecimal():
            raise EngineRefusedError("sbatch must answer with the id of a job", value=f'"{said[:200]}"')
        return found

    def cancel(self, job: str, name: str) -> None:
        """Cancel a job by id and name: Slurm kills it ``KillWait`` seconds later; no effect on a job that has ended."""
        self._cancel(job, name)

    def withdraw(self, job: str, name: str) -> None:
        """Cancel a job by id and name if it still waits in the queue."""
        self._cancel(job, name, "--state=PENDING")

    def signal(self, job: str, name: str) -> None:
        """Send SIGTERM to the script of a running job, without a deadline; no effect on a job that has ended."""
        self._cancel(job, name, "--batch", "--signal=TERM", "--state=RUNNING")

    def _cancel(self, job: str, name: str, *options: str) -> None:
        """Cancel the job with this id if it has this name: Slurm reuses ids from 1 once all are used."""
        if not job.isdecimal():
            raise InputError("a Slurm job must be named by its number", value=f'"{job}"')
        made = self._program(["scancel", f"--name={name}", *options, job])
        if made.returncode != 0 and not any(over in made.stderr.lower() for over in OVER):
            raise _fault(["scancel", job], made)

    def _call(self, command: Sequence[str]) -> str:
        return self._done(command).stdout

    def _done(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        made = self._program(command)
        if made.returncode != 0:
            raise _fault(command, made)
        return made

    def _program(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        try:
            return self._run(command)
        except OSError as error:  # missing, or not executable
            rule = f"{command[0]} must be here: this command runs where Slurm's programs are"
            raise InputError(rule, value=error.strerror or str(error)) from None
        except subprocess.TimeoutExpired:
            raise EngineSilentError(f"{command[0]} must answer within {CALL_SECONDS:g} s") from None


def _fault(command: Sequence[str], made: "subprocess.CompletedProcess[str]") -> InputError | EngineSilentError:
    """Return the error for a program that failed, with Slurm's message."""
    words = " ".join((made.stderr.strip() or made.stdout.strip() or f"exit code {made.returncode}").split())
    if any(silence in words.lower() for silence in SILENCES):
        return EngineSilentError(f"Slurm's controller must answer {command[0]}", value=f'"{words[:300]}"')
    return EngineRefusedError(f"Slurm must accept what {command[0]} asks", value=f'"{words[:300]}"')


def step_of(line: str) -> SlurmStep:
    """Parse the step in a line of ``STEP_FORMAT``.

    Raises:
        EngineSilentError: the line has another form, so the steps are unknown.
    """
    parts = line.split("|", 2)
    if len(parts) != 3 or not parts[0].strip():
        raise EngineSilentError("squeue must print the fields that were asked for", value=f'"{line[:200]}"')
    step, host, name = (part.strip() for part in parts)
    return SlurmStep(id=step, name=name, host=host)


def job_of(line: str) -> SlurmJob:
    """Parse the job in a line of ``JOB_FORMAT``.

    Raises:
        EngineSilentError: the line has another form, so the jobs are unknown.
    """
    parts = line.split("|", 8)
    if len(parts) != 9 or not parts[0].strip():
        raise EngineSilentError("squeue must print the fields that were asked for", value=f'"{line[:200]}"')
    job, state, name, partition, host, submitted, began, ends, reason = (part.strip() for part in parts)
    return SlurmJob(
        id=job,
        state=state.upper(),
        name=name,
        partition=partition,
        host=host,
        submitted_at=time_of(submitted),
        began_at=time_of(began),
        ends_at=time_of(ends),
        reason="" if reason == "None" else reason,
    )


def nodes_of(line: str) -> SlurmNodes:
    """Parse the nodes in a line of ``PARTITION_FORMAT``.

    Raises:
        EngineSilentError: the line has another form, so the nodes are unknown.
    """
    parts = [part.strip() for part in line.split("|", 7)]
    if len(parts) != 8:
        raise EngineSilentError("sinfo must print the fields that were asked for", value=f'"{line[:200]}"')
    name, available, limit, count, cpus, memory, state, gres = parts
    return SlurmNodes(
        partition=name.removesuffix("*"),
        is_default=name.endswith("*"),
        is_up=available == "up",
        limit_seconds=seconds_of(limit),
        count=_number(count),
        cpus=_number(cpus),
        memory_mib=_number(memory),
        state=state.rstrip("*~#!%$@^-+"),
        gpus=gpus_of(gres),
    )


def gpus_of(gres: str) -> Mapping[str, int]:
    """Parse GRES to numbers of GPUs by type: ``gpu:a100:4(S:0-1),gpu:2`` becomes ``{"a100": 4, "": 2}``."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = part.strip().split(":")
        if name == "gpu" and rest and rest[-1].isdecimal():
            kind = rest[0] if len(rest) > 1 else ""
            found[kind] = found.get(kind, 0) + int(rest[-1])
    return found


def time_of(text: str) -> float | None:
    """Parse a time of Slurm to Unix time in seconds; None: there is no time, or it has another form."""
    return float(text) if text.isdecimal() and text != "0" else None


def seconds_of(text: str) -> float | None:
    """Parse a time limit (``2:00``, ``1-12:00:00``, ``30`` minutes) to seconds; None: no limit, or another form."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        return None
    days, *numbers = (None if part is None else int(part) for part in found.groups())
    first, second, third = (number or 0 for number in numbers)
    if days is not None:  # days-hours[:minutes[:seconds]]
        return 86400.0 * days + 3600.0 * first + 60.0 * second + third
    if found.group(4) is not None:  # hours:minutes:seconds
        return 3600.0 * first + 60.0 * second + third
    return 60.0 * first + second  # minutes[:seconds]


def _number(text: str) -> int:
    """Return the lower bound in a text such as ``8`` or ``8+``; 0: there is no number."""
    found = re.match(r"\d+", text)
    return int(found.group(0)) if found else 0
