"""Records what Slurm's programs print: `python -m tests.engines.record_slurm FOLDER`, as root, beside a free machine.

Starts the Slurm of the live tests below FOLDER (new), brings jobs into each state that can be had on one host, and
writes what the programs printed to ``recorded/slurm-VERSION.json``. Ids and times are those of the recording.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.engines.slurm_lab import SlurmLab, slurm

from eunomia.errors import EunomiaError
from eunomia_engines.slurm.limits import associations, partitions, qualities, site
from eunomia_engines.slurm.programs import SlurmPrograms, run_program

RECORDED = Path(__file__).parent / "recorded"
NAME = "eunomia-node-0bc588a6"


class Recorder:
    """Calls Slurm's programs as Eunomia does, and keeps their answers by case."""

    def __init__(self) -> None:
        self.answers: dict[str, list[dict[str, object]]] = {}
        self._case = ""
        self.programs = SlurmPrograms(self._run)

    @contextlib.contextmanager
    def case(self, name: str) -> Iterator[SlurmPrograms]:
        """Record the calls of a case; what Eunomia makes of them does not matter here."""
        self._case = name
        with contextlib.suppress(EunomiaError):
            yield self.programs
        self._case = ""

    def _run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        made = run_program(command)
        answer = {"command": [*command], "code": made.returncode, "stdout": made.stdout, "stderr": made.stderr}
        if self._case:
            self.answers.setdefault(self._case, []).append(answer)
        return made


def record(lab: SlurmLab) -> Recorder:
    """Bring jobs into all states, and record the answers."""
    os.environ["SLURM_CONF"] = str(lab.config)
    made = Recorder()
    script = lab.folder / "node.sh"

    def job(*options: str, body: str = "sleep 300") -> str:
        lines = [f"#SBATCH --job-name={NAME}", "#SBATCH --output=/dev/null", *(f"#SBATCH {each}" for each in options)]
        script.write_text("\n".join(["#!/bin/bash", *lines, body, ""]), encoding="utf-8")
        return str(script)

    def wait(of: str, state: str) -> None:
        deadline = time.monotonic() + 120.0
        while lab.call("squeue", "-h", "--states=all", "-j", of, "-o", "%T").strip() != state:
            assert time.monotonic() < deadline, (of, state, lab.call("squeue", "--states=all"))
            time.sleep(0.3)

    def begun(*options: str, body: str = "sleep 300") -> str:
        one = made.programs.submit(job("--time=10", *options, body=body))
        wait(one, "RUNNING")
        return one

    with made.case("version") as programs:
        programs.version()
    with made.case("nodes") as programs:
        programs.nodes()
    with made.case("partitions") as programs:
        partitions(programs)
    with made.case("config") as programs:
        site(programs)
    with made.case("associations without a database") as programs:
        associations(programs)
    with made.case("qos without a database") as programs:
        qualities(programs)
    with made.case("no jobs") as programs:
        programs.jobs([NAME])
    for case, options in {
        "test of a job that fits": ("--gres=gpu:4",),
        "test of a partition that is not there": ("--partition=gpus",),
        "test of gpus that are not there": ("--gres=gpu:9",),
        "test of more nodes than there are": ("--nodes=9",),
    }.items():
        with made.case(case) as programs:
            programs.submit(job(*options), only_test=True)
    lab.call("scontrol", "update", "PartitionName=high", "State=INACTIVE")
    with made.case("a partition that takes no job") as programs:
        programs.submit(job("--partition=high"))
    with made.case("partitions, one inactive") as programs:
        partitions(programs)
    lab.call("scontrol", "update", "PartitionName=high", "State=UP")
    with made.case("submit") as programs:
        first = programs.submit(job("--time=10", "--gres=gpu:4", "--nodelist=gpu1"))
    wait(first, "RUNNING")
    with made.case("a job that runs") as programs:
        programs.jobs([NAME])
    waiting = made.programs.submit(job("--time=10", "--gres=gpu:4", "--nodelist=gpu1"))
    held = made.programs.submit(job("--hold"))
    time.sleep(3.0)
    with made.case("jobs that wait, one held") as programs:
        programs.jobs([NAME])
    with made.case("withdraw a job that runs") as programs:
        programs.withdraw(first, NAME)
    with made.case("signal a job that waits") as programs:
        programs.signal(waiting, NAME)
    with made.case("cancel a job of another name") as programs:
        programs.cancel(first, "eunomia-node-ffffffff")
    with made.case("withdraw a job that waits") as programs:
        programs.withdraw(held, NAME)
    with made.case("cancel a job that is over") as programs:
        programs.cancel(held, NAME)
    with made.case("cancel a job that is not known") as programs:
        programs.cancel("999999", NAME)
    lab.call("scontrol", "suspend", first)
    wait(first, "SUSPENDED")
    with made.case("a job that is suspended") as programs:
        programs.jobs([NAME])
    lab.call("scontrol", "resume", first)
    made.programs.cancel(waiting, NAME)
    ended = {
        "COMPLETED": begun(body="sleep 2"),
        "FAILED": begun(body="sleep 2; exit 3"),
    }
    slow = begun("--nodelist=gpu2", body="trap 'sleep 20' TERM; sleep 60 & wait")
    made.programs.cancel(slow, NAME)
    with made.case("a job that completes") as programs:
        programs.jobs([NAME])
    for state, one in ended.items():
        wait(one, state)
    made.programs.cancel(first, NAME)
    wait(slow, "CANCELLED")
    begun("--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=gpu[2-3]", "--no-kill", "--no-requeue")
    with made.case("a job of two nodes") as programs:
        programs.jobs([NAME])
    with made.case("hosts of a job of two nodes") as programs:
        programs.hosts("gpu[2-3]")
    lost = begun("--nodelist=gpu3", "--no-requeue")
    lab.kill("gpu3")
    wait(lost, "NODE_FAIL")
    with made.case("jobs that ended, one by its node") as programs:
        programs.jobs([NAME])
    with made.case("nodes, one down") as programs:
        programs.nodes()
    lab.kill("slurmctld")
    with made.case("a controller that does not answer: jobs") as programs:
        programs.jobs([NAME])
    with made.case("a controller that does not answer: submit") as programs:
        programs.submit(job())
    with made.case("a controller that does not answer: cancel") as programs:
        programs.cancel(first, NAME)
    with made.case("a controller that does not answer: nodes") as programs:
        programs.nodes()
    return made


def main() -> None:
    """Write the recording."""
    folder = Path(sys.argv[1])
    folder.mkdir()
    with slurm(folder) as lab:
        made = record(lab)
    text = json.dumps({"version": made.programs.version(), "answers": made.answers}, indent=1)
    RECORDED.mkdir(exist_ok=True)
    path = RECORDED / f"slurm-{made.programs.version()}.json"
    host = socket.gethostname()
    text = text.replace(str(folder), "/lab")
    for own in (host, host.partition(".")[0]):  # as words: a short name may be part of others
        text = re.sub(rf"\b{re.escape(own)}\b", "head", text)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
