"""Batch jobs of several nodes: what is asked for, what a job's script does on each node, and what each node is."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engines.recorded_slurm import RecordedLab
from typer.testing import CliRunner

from eunomia.errors import InputError
from eunomia_engines.commands import slurm as commands
from eunomia_engines.commands.slurm import UpFlags
from eunomia_engines.engine import Engine, NodeState
from eunomia_engines.keeper.demand import Demand
from eunomia_engines.pilots.records import PILOTS, Pilot, write_end, write_pilot
from eunomia_engines.slurm.engine import SlurmEngine
from eunomia_engines.slurm.head import parts_of
from eunomia_engines.slurm.head_control import HeadControl
from eunomia_engines.slurm.programs import SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, Request
from eunomia_engines.slurm.script import LOGS, check_more, job_script

NODES = 3


def request(**more: object) -> Request:
    """A request for jobs of three nodes."""
    given = {"least": 3, "most": 6, "nodes_per_job": NODES, "seconds": 3600.0, "cpu_slots": 2, "cpus": 2}
    return Request(**(given | {"python": "/opt/py/bin/python", "node_dir": Path("/var/tmp")} | more))


# --- the options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "together", "said"),
    [
        ("2..8", 3, "both ends of --nodes must be multiples of --nodes-per-job, 3, but got 2..8"),
        ("3..8", 3, "but got 3..8"),
        ("4", 3, "but got 4"),
        ("1..2", 2, "but got 1..2"),
    ],
)
def test_a_number_of_nodes_that_whole_jobs_do_not_give_is_refused(nodes: str, together: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        UpFlags(nodes=nodes, nodes_per_job=together, time="1h", gres="gpu:4").request()


def test_both_ends_of_a_range_are_whole_jobs() -> None:
    made = UpFlags(nodes="2..8", nodes_per_job=2, time="1h", gres="gpu:4").request()
    assert (made.least, made.most, made.nodes_per_job) == (2, 8, 2)
    assert UpFlags(nodes="2..8", time="1h", gres="gpu:4").request().nodes_per_job == 1


@pytest.mark.parametrize("option", ["--ntasks-per-node=2", "--no-kill", "--nodes=4"])
def test_options_of_sbatch_that_make_a_job_of_nodes_are_not_for_users(option: str) -> None:
    with pytest.raises(InputError, match="none that Eunomia sets"):
        check_more((option,))


def test_a_request_of_an_earlier_version_has_a_node_a_job(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    request(nodes_per_job=1).save(tmp_path)
    path = tmp_path / FOLDER / "request.json"
    fields = json.loads(path.read_text())
    del fields["nodes_per_job"]
    path.write_text(json.dumps(fields))
    assert Request.load(tmp_path).nodes_per_job == 1


def test_the_keeper_of_a_head_asks_for_whole_jobs(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    request().save(tmp_path)
    demand = parts_of(tmp_path).demand
    assert isinstance(demand, Demand) and (demand.group, demand.most) == (NODES, 6)


# --- the script ------------------------------------------------------------------------------------------------------


def test_a_script_of_several_nodes_runs_a_task_on_each_and_is_valid_shell(tmp_path: Path) -> None:
    state = Path("/a state; touch x")
    script = job_script(request(setup=Path("/my env.sh"), more=("--exclusive",)), state)
    lines = script.splitlines()
    for option in ("--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--no-kill", "--no-requeue", "--exclusive"):
        assert f"#SBATCH {option}" in lines
    (srun,) = [line for line in lines if line.startswith("srun ")]
    options = "--nodes=3 --ntasks=3 --ntasks-per-node=1 --kill-on-bad-exit=0 --no-kill --wait=0 --mem=0"
    assert srun.startswith(f"srun {options} --cpus-per-task=2 ")
    assert "token" not in script.lower()
    path = tmp_path / "node.sh"
    path.write_text(script, encoding="utf-8")
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


def test_a_script_of_one_node_needs_no_srun() -> None:
    script = job_script(request(nodes_per_job=1), Path("/s"))
    assert "srun" not in script and "no-kill" not in script and "ntasks-per-node" not in script


SRUN = """#!/bin/bash
# A srun that runs the tasks of a job here, one for each node, and ends once all have ended.
while [ "$1" != bash ]; do case $1 in --ntasks=*) count=${1#--ntasks=};; esac; shift; done
for ((node = 0; node < count; node++)); do
  SLURM_NODEID=$node SLURMD_NODENAME=gpu$((node + 1)) setsid "$@" &
done
wait
"""
LAUNCHER = """#!/bin/bash
# A launcher that notes its starts and the order to end, beside its record.
[ "${@: -1}" != --clear ] || exit 0
base="RECORDS/$EUNOMIA_PILOT"
echo start >> "$base.starts"
echo "{}" > "$base.json"
[ -z "$FAILS" ] || [ "$SLURM_NODEID" != "$FAILS" ] || [ "$(wc -l < "$base.starts")" -gt 1 ] || exit 3
trap 'echo term >> "$base.starts"; exit 0' TERM
while :; do sleep 0.1; done
"""


class Job:
    """A job's script that runs on this machine, with a ``srun`` and a launcher of the test."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder, programs = folder / "state" / FOLDER, folder / "programs"
        programs.mkdir()
        for name in (LOGS, PILOTS):
            (self.folder / name).mkdir(parents=True)
        launcher = programs / "launcher"
        launcher.write_text(LAUNCHER.replace("RECORDS", str(self.folder / PILOTS)), encoding="utf-8")
        (programs / "srun").write_text(SRUN, encoding="utf-8")
        for path in programs.iterdir():
            path.chmod(0o700)
        script = folder / "job.sh"
        script.write_text(job_script(request(python=str(launcher)), folder / "state"), encoding="utf-8")
        own = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "12", "FAILS": "", **env}
        self.process = subprocess.Popen(["bash", str(script)], env=own, start_new_session=True)

    def starts(self, number: int) -> list[str]:
        """What the launcher of a node noted."""
        path = self.folder / PILOTS / f"12-{number}.starts"
        return path.read_text().split() if path.exists() else []

    def ends(self) -> list[str]:
        """The recorded exit codes, by the number of the node."""
        paths = [self.folder / PILOTS / f"12-{number}.end" for number in range(1, NODES + 1)]
        return [path.read_text().strip() if path.exists() else "" for path in paths]

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + 30.0
        while not done():
            assert time.monotonic() < deadline, (self.ends(), [self.starts(number) for number in (1, 2, 3)])
            time.sleep(0.05)

    def all_started(self, *counts: int) -> bool:
        """Whether the launcher of each node has started so often."""
        return [self.starts(number).count("start") for number in range(1, NODES + 1)] == [*counts]


@pytest.fixture(params=[""])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    """A job that runs; the parameter is the index of the node whose launcher fails once."""
    made = Job(tmp_path, FAILS=request.param)
    yield made
    (made.folder / PILOTS / "12.stop").touch()
    made.process.wait(30.0)


def test_the_signal_to_a_job_ends_the_launcher_of_each_node_in_order(job: Job) -> None:
    job.wait(lambda: job.all_started(1, 1, 1))
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(30.0) == 0
    assert job.ends() == ["0", "0", "0"]
    assert [job.starts(number)[-1] for number in (1, 2, 3)] == ["term"] * 3
    assert not list((job.folder / PILOTS).glob("*.stop"))
    assert sorted(path.name for path in (job.folder / LOGS).iterdir()) == ["12-1.log", "12-2.log", "12-3.log"]


@pytest.mark.parametrize("job", ["1"], indirect=True)
def test_a_launcher_that_dies_is_started_again_alone(job: Job) -> None:
    job.wait(lambda: job.all_started(1, 2, 1))
    assert job.process.poll() is None
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(30.0) == 0
    assert job.ends() == ["0", "0", "0"]


def test_tasks_end_in_order_if_srun_dies(job: Job) -> None:
    job.wait(lambda: job.all_started(1, 1, 1))
    (srun,) = subprocess.run(
        ["pgrep", "-P", str(job.process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    os.kill(int(srun), signal.SIGKILL)
    job.process.wait(30.0)
    assert job.ends() == ["0", "0", "0"]


# --- the nodes of a job ----------------------------------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path) -> RecordedLab:
    return RecordedLab(tmp_path, nodes_per_job=NODES)


def engine_of(lab: RecordedLab) -> Engine:
    return lab.kind.engine(lab.states[0])


def begin(lab: RecordedLab, node: str, host: str) -> None:
    """Write the record of a pilot."""
    write_pilot(lab.states[0] / FOLDER, Pilot(job=node, node=host, host=host, began_at=1.0))


def hosts(engine: Engine) -> dict[str, str]:
    return {node.id: node.host for node in engine.nodes()}


def test_an_ask_submits_whole_jobs(lab: RecordedLab) -> None:
    engine = engine_of(lab)
    assert engine.ask(2) == []
    assert engine.ask(7) == ["12-1", "12-2", "12-3", "13-1", "13-2", "13-3"]
    assert len(lab.slurm.jobs) == 2
    assert {(node.group, node.state, node.host) for node in engine.nodes()} == {
        ("12", NodeState.ASKED, ""),
        ("13", NodeState.ASKED, ""),
    }


def test_jobs_before_the_one_that_slurm_refuses_give_all_their_nodes(lab: RecordedLab) -> None:
    lab.slurm.most_jobs = 1
    assert engine_of(lab).ask(6) == ["12-1", "12-2", "12-3"]


def test_nodes_of_a_job_have_its_times_and_the_hosts_that_pilots_recorded(lab: RecordedLab) -> None:
    engine = engine_of(lab)
    engine.ask(3)
    lab.give("12-1")
    assert hosts(engine) == {"12-1": "gpu1", "12-2": "gpu2", "12-3": "gpu3"}
    begin(lab, "12-1", "gpu3")
    assert hosts(engine) == {"12-1": "gpu3", "12-2": "gpu1", "12-3": "gpu2"}
    assert len({(node.state, node.began_at, node.ends_at) for node in engine.nodes()}) == 1


def test_a_node_whose_host_has_left_the_job_has_ended_and_no_other_takes_its_place(lab: RecordedLab) -> None:
    engine = engine_of(lab)
    engine.ask(3)
    lab.give("12-1")
    for number in (1, 2, 3):
        begin(lab, f"12-{number}", f"gpu{number}")
    lab.change("12", host="gpu1,gpu3")
    states = {node.id: (node.state, node.host) for node in engine.nodes()}
    assert states == {
        "12-1": (NodeState.RUNS, "gpu1"),
        "12-2": (NodeState.ENDED, "gpu2"),
        "12-3": (NodeState.RUNS, "gpu3"),
    }


def test_a_job_that_starts_with_fewer_hosts_has_fewer_nodes(lab: RecordedLab) -> None:
    engine = engine_of(lab)
    engine.ask(3)
    lab.give("12-1")
    lab.change("12", host="gpu1,gpu3")
    assert [node.state for node in engine.nodes()] == [NodeState.RUNS, NodeState.RUNS, NodeState.ENDED]


def test_a_node_whose_launcher_has_ended_ends_while_its_job_runs(lab: RecordedLab) -> None:
    engine = engine_of(lab)
    engine.ask(3)
    lab.give("12-1")
    begin(lab, "12-1", "gpu1")
    write_end(lab.states[0] / FOLDER, "12-1", 0)
    write_end(lab.states[0] / FOLDER, "12-2", 9)
    states = [(node.state, node.why) for node in engine.nodes()]
    assert states == [
        (NodeState.ENDS, "its launcher has ended; its job runs"),
        (NodeState.ENDS, "its launcher has ended with code 9; its job runs"),
        (NodeState.RUNS, ""),
    ]
    lab.end("12-1")
    assert {node.state for node in engine.nodes()} == {NodeState.ENDED}


def test_the_names_of_hosts_are_read_once_for_each_list(lab: RecordedLab) -> None:
    engine = engine_of(lab)
    engine.ask(3)
    lab.give("12-1")
    for _ in range(3):
        engine.nodes()
    assert len([call for call in lab.slurm.calls if call[:3] == ["scontrol", "show", "hostnames"]]) == 1


def test_giving_a_node_back_ends_its_job(lab: RecordedLab) -> None:
    engine = engine_of(lab)
    engine.ask(6)
    lab.give("12-1")
    engine.give_back("12-2")
    order = lab.states[0] / FOLDER / PILOTS / "12.stop"
    assert not order.exists(), "no task has begun"
    begin(lab, "12-3", "gpu3")
    engine.give_back("12-2")
    assert order.exists(), "the host of the job's script may have failed"
    assert {node.id for node in engine.nodes() if node.state is NodeState.ENDED} == {"12-1", "12-2", "12-3"}


def programs_of(lab: RecordedLab) -> SlurmPrograms:
    return SlurmPrograms(lab.slurm.run, which=lambda name: name)


def test_another_number_of_nodes_a_job_is_refused_while_jobs_are_there(lab: RecordedLab) -> None:
    state = lab.states[0]
    engine_of(lab).ask(3)
    other = HeadControl(replace_nodes(Request.load(state), 1), state, programs_of(lab))
    with pytest.raises(InputError, match=r"must be that of the jobs that are there, 3: .* but got 1 \(job 12\)"):
        other.prepare()
    HeadControl(Request.load(state), state, programs_of(lab)).prepare()
    engine_of(lab).give_back("12-1")
    other.prepare()


def replace_nodes(made: Request, together: int) -> Request:
    return made.model_copy(update={"nodes_per_job": together})


# --- what users see --------------------------------------------------------------------------------------------------


def status(lab: RecordedLab, monkeypatch: pytest.MonkeyPatch, *more: str) -> str:
    """The output of ``eunomia slurm status``."""
    state, programs = lab.states[0], programs_of(lab)
    monkeypatch.setattr(commands, "engine_of", lambda request, state: SlurmEngine(request, state, programs))
    made = CliRunner().invoke(commands.slurm, ["status", "--state-dir", str(state), *more])
    assert made.exit_code == 0, made.output
    return made.output


def test_status_has_a_line_for_a_job_that_waits_and_one_for_each_node_that_runs(
    lab: RecordedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_of(lab).ask(6)
    lab.give("12-1")
    begin(lab, "12-1", "gpu1")
    write_end(lab.states[0] / FOLDER, "12-1", 9)
    logs = lab.states[0] / FOLDER / LOGS
    (logs / "12-1.log").write_text("no such module\n")
    rows = [line.split() for line in status(lab, monkeypatch).splitlines()[2:]]
    assert [row[:3] for row in rows] == [
        ["12", "ends", "gpu1"],
        ["12", "running", "gpu2"],
        ["12", "running", "gpu3"],
        ["13", "pending", "3"],
    ]
    assert rows[3][3] == "nodes"
    assert "with code 9; its job runs; no such module" in " ".join(rows[0])
    facts = json.loads(status(lab, monkeypatch, "--json"))["nodes"]
    assert [(one["job"], one["id"]) for one in facts][2:4] == [("12", "12-3"), ("13", "13-1")]
