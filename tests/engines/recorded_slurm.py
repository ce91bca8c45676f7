"""Slurm's programs of a test: they keep jobs, and print what the programs of 22.05.8 printed in the same case."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from eunomia_engines.slurm.engine import SlurmKind
from eunomia_engines.slurm.job_nodes import job_of_node
from eunomia_engines.slurm.programs import JOB_FORMAT, PARTITION_FORMAT, SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, Request
from eunomia_engines.testing.conformance import Saying

NOW = 1795909739
LENGTH = 600
VERSION = "slurm 22.05.8\n"
PARTITIONS = "gpu*|up|infinite|3|8|2000|idle|gpu:v100:4\nhigh|up|infinite|3|8|2000|idle|gpu:v100:4\n"
REFUSAL = (
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
    "and/or time limits)\n"
)
SILENCE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
NO_ACCOUNTS = (
    "You are not running a supported accounting_storage plugin\nOnly 'accounting_storage/slurmdbd' is supported.\n"
)
NOT_KNOWN = "scancel: error: Kill job error on job id {job}: Invalid job id specified\n"


@dataclass
class Job:
    """A job of the controller, with the fields of a line of ``squeue``."""

    id: str
    name: str
    state: str = "PENDING"
    host: str = ""
    reason: str = "Resources"
    says: frozenset[Saying] = frozenset()

    @property
    def lines(self) -> Sequence[str]:
        """Its lines in ``squeue``."""
        if Saying.NOT_LISTED in self.says:
            return ()
        state = "POWER_DOWN_FORCED" if Saying.STRANGE_STATE in self.says else self.state
        line = self._line(state)
        more = {Saying.TWICE: line, Saying.CONTRADICTION: self._line("COMPLETED")}
        return [line, *(text for saying, text in more.items() if saying in self.says)]

    def _line(self, state: str) -> str:
        times = f"{NOW}|0|N/A" if self.state == "PENDING" else f"{NOW}|{NOW + 1}|{NOW + 1 + LENGTH}"
        if Saying.NO_TIMES in self.says:
            times = "N/A|2026-11-28T23:28:13|NONE"
        return f"{self.id}|{state}|{self.name}|gpu|{self.host}|{times}|{self.reason}"


@dataclass
class RecordedSlurm:
    """A controller."""

    jobs: dict[str, Job] = field(default_factory=dict)
    is_silent: bool = False
    refuses: bool = False
    most_jobs: int | None = None
    calls: list[list[str]] = field(default_factory=list)

    def run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Run a program."""
        program, *options = command
        self.calls.append([*command])
        if options == ["--version"]:
            return _done(command, VERSION)
        if self.is_silent:
            return _done(command, error=SILENCE, code=1)
        if options[:2] == ["show", "hostnames"]:
            return _done(command, options[2].replace(",", "\n") + "\n")
        if program in ("scontrol", "sacctmgr"):
            return _done(command, error=NO_ACCOUNTS, code=1) if program == "sacctmgr" else _done(command)
        answers = {"squeue": self._squeue, "sinfo": self._sinfo, "sbatch": self._sbatch, "scancel": self._scancel}
        return answers[program](options)

    def _squeue(self, options: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        assert f"--format={JOB_FORMAT}" in options and "--states=all" in options
        (names,) = [option.partition("=")[2].split(",") for option in options if option.startswith("--name=")]
        lines = [line for job in self.jobs.values() if job.name in names for line in job.lines]
        return _done(["squeue"], "".join(f"{line}\n" for line in lines))

    def _sinfo(self, options: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        assert f"--format={PARTITION_FORMAT}" in options
        return _done(["sinfo"], PARTITIONS)

    def _sbatch(self, options: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        if self.refuses or (self.most_jobs is not None and len(self.jobs) >= self.most_jobs):
            return _done(["sbatch"], error=REFUSAL, code=1)
        script = Path(options[-1]).read_text(encoding="utf-8")
        (name,) = [line.partition("=")[2] for line in script.splitlines() if line.startswith("#SBATCH --job-name=")]
        made = str(12 + len(self.jobs))
        self.jobs[made] = Job(id=made, name=name)
        return _done(["sbatch"], f"{made}\n")

    def _scancel(self, options: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        job = self.jobs.get(options[-1])
        if job is None:
            return _done(["scancel"], error=NOT_KNOWN.format(job=options[-1]), code=1)
        states = [option.partition("=")[2] for option in options if option.startswith("--state=")]
        names = [option.partition("=")[2] for option in options if option.startswith("--name=")]
        if job.name in names and job.state in (states or ("PENDING", "RUNNING")):
            ended = "COMPLETED" if "--signal=TERM" in options else "CANCELLED"  # the script ends by itself
            self.jobs[job.id] = replace(job, state=ended, reason="None")
        return _done(["scancel"])


class RecordedLab:
    """A controller whose jobs a test moves."""

    sayings = frozenset(Saying)
    seconds = 0.0

    def __init__(self, folder: Path, *, nodes_per_job: int = 1) -> None:
        self.nodes_per_job = nodes_per_job
        self.slurm = RecordedSlurm()
        self.kind = SlurmKind(SlurmPrograms(self.slurm.run, which=lambda name: f"/usr/bin/{name}"))
        self.states = (folder / "a", folder / "b")
        for state in self.states:
            (state / FOLDER).mkdir(parents=True)
            given = {"least": nodes_per_job, "most": 2 * nodes_per_job, "nodes_per_job": nodes_per_job}
            Request(**given, seconds=LENGTH, cpu_slots=2, python="python", node_dir=folder).save(state)

    def give(self, node: str) -> None:
        used = [host for job in self.slurm.jobs.values() if job.state == "RUNNING" for host in job.host.split(",")]
        free = [name for name in (f"gpu{number}" for number in range(1, 7)) if name not in used]
        self.change(node, state="RUNNING", host=",".join(free[: self.nodes_per_job]), reason="None")

    def end(self, node: str) -> None:
        self.change(node, state="TIMEOUT", reason="TimeLimit")

    def change(self, node: str, **fields: str) -> None:
        """Change the job of a node."""
        job = job_of_node(node)
        self.slurm.jobs[job] = replace(self.slurm.jobs[job], **fields)  # type: ignore[arg-type]

    def say(self, node: str, saying: Saying) -> None:
        job = job_of_node(node)
        self.slurm.jobs[job] = replace(self.slurm.jobs[job], says=frozenset({saying}))

    def refuse(self) -> None:
        self.slurm.refuses = True

    def silence(self) -> None:
        self.slurm.is_silent = True

    def close(self) -> None:
        pass


def _done(
    command: Sequence[str], text: str = "", *, code: int = 0, error: str = ""
) -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess(list(command), code, text, error)
