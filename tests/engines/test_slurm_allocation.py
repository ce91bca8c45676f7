"""An arbiter on the nodes of an allocation: steps, refusals; with recorded answers of 22.05.8, and on a real Slurm."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engines.slurm_lab import needs_slurm, slurm
from tests.engines.test_slurm_live import Site, wait

from eunomia.errors import InputError
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.launcher.processes import identify
from eunomia_engines.engine import EngineSilentError, NodeState
from eunomia_engines.requests import mark_of
from eunomia_engines.slurm.programs import SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, Request, node_job_name
from eunomia_engines.slurm.steps import AllocationEngine
from eunomia_engines.slurm.taking import serve_allocation

JOB = "4711"
OVER = "slurm_load_jobs error: Invalid job id specified\n"
SILENT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


class RecordedAllocation:
    """Slurm's programs in an allocation of two nodes."""

    def __init__(self) -> None:
        self.state = "RUNNING"
        self.steps: dict[str, tuple[str, str]] = {}
        """Host and name by id."""
        self.calls: list[list[str]] = []
        self.ends_in = 600.0
        self.is_silent = self.is_forgotten = False

    def run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        self.calls.append([*command])
        if self.is_silent:
            return _done(command, error=SILENT, code=1)
        if command[0] == "scontrol":
            return _done(command, "gpu1\ngpu2\n")
        if command[0] == "scancel":
            return _done(command)
        if self.is_forgotten:
            return _done(command, error=OVER, code=1)
        if "--steps" in command:
            lines = [f"{step}|{host}|{name}\n" for step, (host, name) in self.steps.items()]
            return _done(command, "".join(lines))
        now = time.time()
        line = f"{JOB}|{self.state}|interactive|gpu|gpu[1-2]|{now:.0f}|{now:.0f}|{now + self.ends_in:.0f}|None\n"
        return _done(command, line)

    @property
    def programs(self) -> SlurmPrograms:
        return SlurmPrograms(self.run, which=lambda name: f"/usr/bin/{name}")


class Lab:
    """An engine whose ``srun`` is a process that waits."""

    def __init__(self, folder: Path) -> None:
        self.slurm = RecordedAllocation()
        self.folder, self.started = folder, dict[str, subprocess.Popen[bytes]]()
        (folder / FOLDER).mkdir(parents=True)
        self.request = Request(
            least=2, most=2, seconds=600.0, cpu_slots=2, python="python", node_dir=folder, allocation=JOB
        )
        self.engine = self.begin()

    def begin(self) -> AllocationEngine:
        """An engine of another process."""
        return AllocationEngine(self.request, self.folder, self.slurm.programs, self.spawn)

    def spawn(self, command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(["sleep", "60"])
        self.started[log.stem] = process
        self.slurm.calls.append([*command])
        return process

    def list(self, node: str, step: str) -> None:
        """Let Slurm list a node's step."""
        _, host, number = node.split(".")
        self.slurm.steps[step] = (host, f"{node_job_name(self.folder)}-{number}")

    def states(self) -> Mapping[str, NodeState]:
        return {node.id: node.state for node in self.engine.nodes()}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    for process in made.started.values():
        process.kill()
        process.wait()


def test_each_host_gets_one_step_which_is_a_node_once_slurm_lists_it(lab: Lab) -> None:
    assert lab.engine.ask(5) == ["4711.gpu1.1", "4711.gpu2.1"]
    assert lab.engine.ask(5) == []
    assert set(lab.states().values()) == {NodeState.ASKED}
    lab.list("4711.gpu2.1", "4711.0")
    assert lab.states() == {"4711.gpu1.1": NodeState.ASKED, "4711.gpu2.1": NodeState.RUNS}
    (runs,) = [node for node in lab.engine.nodes() if node.state is NodeState.RUNS]
    assert runs.host == "gpu2" and runs.ends_at == pytest.approx(time.time() + 600.0, abs=5.0)
    (command,) = [call for call in lab.slurm.calls if "--nodelist=gpu2" in call]
    assert {"--overlap", "--no-kill", "--kill-on-bad-exit=0", "--nodes=1", "--ntasks=1"} <= set(command)
    assert any(word.endswith("EUNOMIA_PILOT=4711.gpu2.1") for word in command)
    assert "TOKEN" not in (lab.folder / FOLDER / "step.sh").read_text().upper().replace("JOIN.TOKEN", "")


def test_a_step_that_ended_is_started_again_after_a_pause_under_another_number(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.engine.ask(2)
    lab.list("4711.gpu2.1", "4711.1")
    lab.started["4711.gpu1.1"].kill()
    lab.started["4711.gpu1.1"].wait()
    assert lab.states()["4711.gpu1.1"] is NodeState.ENDED
    assert lab.engine.ask(1) == []
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 60.0)
    assert lab.engine.ask(1) == ["4711.gpu1.2"]


def test_another_process_finds_the_steps_that_run_and_takes_no_number_twice(lab: Lab) -> None:
    lab.engine.ask(2)
    lab.list("4711.gpu1.1", "4711.0")
    (lab.folder / FOLDER / "pilots" / "4711.gpu2.3.end").write_text("0\n")
    lab.engine = lab.begin()
    assert lab.states() == {"4711.gpu1.1": NodeState.RUNS}
    assert lab.engine.ask(2) == ["4711.gpu2.4"]


def test_a_step_is_ordered_to_end_and_killed_if_it_does_not_end(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.engine.ask(2)
    lab.list("4711.gpu1.1", "4711.7")
    lab.engine.give_back("4711.gpu1.1")
    assert (lab.folder / FOLDER / "pilots" / "4711.gpu1.1.stop").exists(), "its script sees it"
    assert not any("scancel" in call for call in lab.slurm.calls), "Slurm's signal would reach workers"
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600.0)
    lab.engine.give_back("4711.gpu1.1")
    assert lab.slurm.calls[-1] == ["scancel", "--signal=KILL", "4711.7"]
    lab.engine.give_back("4711.gpu2.1")
    assert lab.started["4711.gpu2.1"].wait(10.0) == -signal.SIGTERM, "its step has not begun"
    lab.engine.give_back("4711.gpu9.1")


@pytest.mark.parametrize("how", ["ended", "forgotten"])
def test_with_the_end_of_the_allocation_all_nodes_have_ended_and_none_is_asked_for(lab: Lab, how: str) -> None:
    lab.engine.ask(2)
    lab.slurm.state = "TIMEOUT"
    lab.slurm.is_forgotten = how == "forgotten"
    assert set(lab.states().values()) == {NodeState.ENDED}
    assert lab.engine.is_over and lab.engine.ask(2) == ()


def test_a_silent_controller_says_nothing_about_nodes(lab: Lab) -> None:
    lab.engine.ask(2)
    lab.slurm.is_silent = True
    with pytest.raises(EngineSilentError):
        lab.engine.nodes()
    assert not lab.engine.is_over


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"env": {}}, "must be typed within an allocation"),
        ({"env": {"SLURM_JOB_ID": "x y"}}, "must be typed within an allocation"),
        ({"state": "COMPLETED"}, "must be typed within an allocation that runs .* SLURM_JOB_ID=4711: COMPLETED"),
        ({"is_forgotten": True}, "must be typed within an allocation that runs .* not known"),
        ({"ends_in": 20.0}, "must last at least 60 s more"),
        ({"steps": {"4711.0": ("gpu1", "eunomia-node-12345678-1")}}, "must have one arbiter; .* 4711.0"),
        ({"flags": {"slot_types": "2x fast:0.5"}}, "--slot-types must not come with --on slurm"),
        ({"flags": {"no_launcher": True}}, "--no-launcher must not come with --on slurm"),
    ],
)
def test_what_is_no_allocation_to_take_is_refused_and_leaves_nothing(
    change: dict[str, Any], rule: str, tmp_path: Path
) -> None:
    slurm_here = RecordedAllocation()
    env, flags = change.pop("env", {"SLURM_JOB_ID": JOB}), change.pop("flags", {})
    for name, given in change.items():
        setattr(slurm_here, name, given)
    with pytest.raises(InputError, match=rule):
        serve_allocation(ServeFlags(state_dir=tmp_path / "state", **flags), env, slurm_here.programs)
    assert not (tmp_path / "state").exists()


def _done(
    command: Sequence[str], text: str = "", *, error: str = "", code: int = 0
) -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess([*command], code, text, error)


# --- on a real Slurm ----------------------------------------------------------------------------------------------


class Allocation(Site):
    """A user with an allocation of two nodes and a shell in it."""

    def shell(self, words: str, log: str) -> "subprocess.Popen[bytes]":
        """Run a command in the allocation, without waiting."""
        env = {**os.environ, "SLURM_CONF": str(self.lab.config), "SLURM_JOB_ID": self.job}
        with (self.folder / log).open("ab") as out:
            return subprocess.Popen(shlex.split(words), stdout=out, stderr=out, env=env, start_new_session=True)

    def begin(self) -> None:
        """Ask for the allocation."""
        options = ["--nodes=2", "--gres=gpu:4", "--exclusive", "--time=30", "--no-shell"]
        said = self.lab.call("salloc", *options) + self.lab.call("squeue", "-h", "-o", "%i")
        self.job = said.split()[-1]

    def serve(self) -> "subprocess.Popen[bytes]":
        """Serve in the allocation, with two slots a node."""
        words = f"{sys.executable} -m eunomia.cli serve --on slurm --slots 2 --state-dir {self.state}"
        return self.shell(words, "serve.out")

    @property
    def local(self) -> Path:
        """The folder of the nodes' own files."""
        return Path("/var/tmp") / f"eunomia-{os.getuid()}-{mark_of(self.state)}"

    def up(self, *_: str, nodes: int = 2, length: str = "") -> None:
        wait(
            lambda: sum(node["node_state"] == "up" for node in self.nodes()) == nodes, f"{nodes} nodes are up {length}"
        )


@pytest.fixture
def allocation(tmp_path: Path) -> Iterator[Allocation]:
    (tmp_path / "slurm").mkdir()
    with slurm(tmp_path / "slurm") as lab:
        made = Allocation(lab, tmp_path)
        made.begin()
        yield made
        if made.state.exists():
            made.eunomia("slurm", "down", "--now")


def serves(site: Allocation) -> bool:
    """Whether the head serves."""
    return (site.state / FOLDER / "head.json").exists() and json.loads(site.eunomia("slurm", "status", "--json"))[
        "head"
    ] is not None


@needs_slurm
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_search_runs_on_an_allocation_over_a_killed_head_and_a_lost_node(allocation: Allocation) -> None:
    site = allocation
    head = site.serve()
    wait(lambda: serves(site), "the head serves")
    site.up()
    assert {node["job"] for node in site.nodes()} == {f"{site.job}.gpu1.1", f"{site.job}.gpu2.1"}
    site.search(iterations=1500, seconds=0.05)
    wait(lambda: site.app()["slots"] == 4, "the search holds all slots")
    os.kill(head.pid, signal.SIGKILL)
    head.wait()
    head = site.serve()
    wait(lambda: serves(site), "the next head serves")
    site.up()
    assert {node["job"] for node in site.nodes()} == {f"{site.job}.gpu1.1", f"{site.job}.gpu2.1"}, "they are taken up"
    wait(lambda: site.app()["slots"] == 4, "the search goes on")
    launcher = identify(int(json.loads((site.local / "gpu1" / "launcher.json").read_text())["pid"]))
    assert launcher is not None
    launcher.signal(signal.SIGKILL)
    wait(lambda: site.app()["state"] == "finished", "the search finishes", 900.0)
    assert site.app()["trials"] == {"ended": 9, "all": 9}
    head.send_signal(signal.SIGINT)
    assert head.wait(200.0) == 130
    assert site.lab.call("squeue", "-h", "--steps", "-o", "%j").split() in ([], ["extern"])
    assert "RUNNING" in site.lab.call("squeue", "-h", "-o", "%T"), "the allocation stays"
    assert [str(finding) for finding in check_folder(site.state, over=True).findings] == []
    left = subprocess.run(["pgrep", "-af", str(site.state)], capture_output=True, text=True, check=False)
    assert left.stdout.splitlines() == [] and not site.local.exists()
