"""An arbiter whose nodes are jobs of a real Slurm: searches finish, and nothing is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.engines.slurm_lab import SlurmLab, free_ports, needs_slurm, slurm

from eunomia_appmaster.journal_check import check_folder

pytestmark = [needs_slurm, pytest.mark.slow, pytest.mark.timeout(1200)]
WORKER = Path(__file__).parent.parent / "appmaster" / "tiny_worker.py"
SEARCH = """
[app]
name = "nets"
[tuner]
kind = "successive_halving"
metric = "val/accuracy"
mode = "max"
trials = 9
[space]
lr = {{ type = "float", low = 0.01, high = 0.6 }}
[job]
command = "python train.py --lr {{lr}} --seconds {seconds} --every 20"
slots = 1
max_iterations = {iterations}
checkpoint_every = "5s"
"""


class Site:
    """A user of the lab's Slurm, with a state folder that all nodes see."""

    def __init__(self, lab: SlurmLab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.state, self.node_dir = folder / "state", folder / "local"
        self.node_dir.mkdir()
        shutil.copy(WORKER, folder / "train.py")

    def eunomia(self, *words: str, fails: bool = False) -> str:
        """Run a command and return its output."""
        env = {**os.environ, "SLURM_CONF": str(self.lab.config)}
        at = words.index("--") if "--" in words else len(words)
        command = [sys.executable, "-m", "eunomia.cli", *words[:at], "--state-dir", str(self.state), *words[at:]]
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, env=env)
        assert (made.returncode != 0) == fails, f"{words}: {made.stdout} {made.stderr} {self.head_log()}"
        return made.stdout + made.stderr

    def up(self, *more: str, nodes: int = 3, length: str = "30m") -> None:
        """Begin, with two slots a node."""
        given = ["--nodes", str(nodes), "--gres", "gpu:4", "--cpu-slots", "2", "--time", length]
        self.eunomia("slurm", "up", *given, "--node-dir", str(self.node_dir), *more)

    def search(self, *, iterations: int, seconds: float) -> None:
        """Submit a search."""
        path = self.folder / "app.toml"
        path.write_text(SEARCH.format(iterations=iterations, seconds=seconds), encoding="utf-8")
        self.eunomia("submit", str(path))

    def nodes(self) -> list[dict[str, Any]]:
        """The jobs of Slurm, with the nodes that they became."""
        return list(json.loads(self.eunomia("slurm", "status", "--json"))["nodes"])

    def app(self) -> dict[str, Any]:
        """The search."""
        (app,) = json.loads(self.eunomia("apps", "--all", "--json"))["apps"]
        return dict(app)

    def head_log(self) -> str:
        """The last lines of the head."""
        path = self.state / "engine" / "slurm" / "head.log"
        return "\n".join(path.read_text().splitlines()[-30:]) if path.exists() else "no head"

    def left(self) -> list[str]:
        """What is left of an arbiter that is down: jobs, processes, files."""
        jobs = self.lab.call("squeue", "-h", "-o", "%i %T").splitlines()
        processes = subprocess.run(["pgrep", "-af", str(self.state)], capture_output=True, text=True, check=False)
        files = [str(path) for path in self.node_dir.rglob("*")]
        return [*jobs, *processes.stdout.splitlines(), *files]


def wait(done: Callable[[], bool], what: str, seconds: float = 300.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(1.0)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "slurm").mkdir()
    with slurm(tmp_path / "slurm") as lab:
        made = Site(lab, tmp_path)
        yield made
        if made.state.exists():
            made.eunomia("slurm", "down", "--now")


def all_up(site: Site, count: int = 3) -> Callable[[], bool]:
    """Whether so many nodes are up."""
    return lambda: sum(node["node_state"] == "up" for node in site.nodes()) == count


def running(site: Site) -> set[str]:
    """The jobs that run by Slurm's word."""
    return {node["job"] for node in site.nodes() if node["engine_state"] == "runs"}


def test_a_search_runs_on_three_jobs_of_slurm_and_down_leaves_nothing(site: Site) -> None:
    site.up()
    wait(all_up(site), "three nodes are up")
    assert {node["host"] for node in site.nodes()} == {"gpu1", "gpu2", "gpu3"}
    site.search(iterations=200, seconds=0.02)
    wait(lambda: site.app()["state"] == "finished", "the search finishes")
    assert site.app()["trials"] == {"ended": 9, "all": 9}
    assert "a state folder must have one head" in site.eunomia(
        "slurm", "up", "--nodes", "1", "--gres", "gpu:4", "--time", "1h", fails=True
    )
    site.eunomia("slurm", "down")
    assert site.left() == []
    assert [str(finding) for finding in check_folder(site.state, over=True).findings] == []


def test_nodes_are_replaced_before_their_end_and_a_search_goes_on(site: Site) -> None:
    site.up(nodes=2, length="00:02:00")
    wait(all_up(site, 2), "two nodes are up")
    first = {node["job"] for node in site.nodes()}
    site.search(iterations=2000, seconds=0.05)
    wait(lambda: site.app()["state"] == "finished", "the search finishes", 900.0)
    later = {node["job"] for node in site.nodes()}
    assert later - first, "nodes were replaced"
    site.eunomia("slurm", "down")
    assert site.left() == []
    assert [str(finding) for finding in check_folder(site.state, over=True).findings] == []


def test_a_node_that_only_looks_lost_keeps_its_slots_until_its_launcher_has_ended_them(site: Site) -> None:
    site.up(nodes=2)
    wait(all_up(site, 2), "two nodes are up")
    site.search(iterations=3000, seconds=0.05)
    wait(lambda: site.app()["slots"] == 4, "the search holds all slots")
    lost = next(node for node in site.nodes() if node["host"] == "gpu1")
    site.lab.kill("gpu1")
    wait(lambda: lost["job"] not in running(site), "Slurm gives it up")
    assert lost["node"] in site.eunomia("nodes"), "its processes live, so it stays in the arbiter"
    wait(lambda: site.app()["state"] == "finished", "the search finishes", 900.0)
    assert [str(finding) for finding in check_folder(site.state).findings] == []


def test_what_slurm_refuses_is_refused_with_its_words_and_leaves_nothing(site: Site) -> None:
    for more, said in (
        (["--partition", "nope"], '--partition must be one of gpu, high, but got "nope"'),
        (["--gres", "gpu:9"], "--gres must be what nodes of partition gpu have"),
        (["--", "--nodelist=nope"], "Invalid node name specified"),
    ):
        words = ["slurm", "up", "--nodes", "2", "--gres", "gpu:4", "--cpu-slots", "2", "--time", "10m"]
        assert said in site.eunomia(*words, *more, fails=True)
    assert not site.state.exists() and site.left() == []


def test_a_preempted_node_is_replaced_and_loses_at_most_what_it_could_not_save(site: Site) -> None:
    site.up(nodes=2)
    wait(all_up(site, 2), "two nodes are up")
    site.search(iterations=1500, seconds=0.05)
    wait(lambda: site.app()["slots"] == 4, "the search holds all slots")
    victim = next(node for node in site.nodes() if node["host"] == "gpu1")
    other = ["--partition", "high", "--nodelist", "gpu1", "--gres", "gpu:4", "--time", "1", "--wrap", "sleep 30"]
    site.lab.call("sbatch", *other)
    wait(lambda: victim["job"] not in running(site), "Slurm preempts it")
    wait(lambda: len(running(site)) == 2, "it is replaced")
    wait(lambda: site.app()["state"] == "finished", "the search finishes", 900.0)
    assert site.app()["trials"] == {"ended": 9, "all": 9}
    site.eunomia("slurm", "down")
    assert [str(finding) for finding in check_folder(site.state, over=True).findings] == []


def test_a_held_job_is_shown_with_its_reason_and_not_replaced(site: Site) -> None:
    other = ["--nodelist", "gpu1", "--gres", "gpu:4", "--time", "10", "--wrap", "sleep 600"]
    blocker = site.lab.call("sbatch", "--parsable", *other).strip()
    site.up("--", "--nodelist=gpu1", nodes=1)
    wait(lambda: [node["engine_state"] for node in site.nodes()] == ["asked"], "its job waits")
    (held,) = site.nodes()
    site.lab.call("scontrol", "hold", held["job"])
    wait(lambda: "JobHeldAdmin" in [node["why"] for node in site.nodes()], "its reason is shown")  # root holds it
    site.lab.call("scancel", blocker)
    time.sleep(40.0)  # longer than the keeper's look
    assert [node["job"] for node in site.nodes()] == [held["job"]]
    site.lab.call("scontrol", "release", held["job"])
    wait(all_up(site, 1), "it runs once it is released")
    assert "disabled" in site.lab.call("scontrol", "requeue", held["job"]), "no job is requeued"


def test_a_head_that_is_killed_is_followed_by_one_that_takes_up_its_nodes(site: Site) -> None:
    site.up(nodes=2)
    wait(all_up(site, 2), "two nodes are up")
    before = {node["job"] for node in site.nodes()}
    site.search(iterations=1500, seconds=0.05)
    wait(lambda: site.app()["slots"] == 4, "the search holds all slots")
    site.eunomia("nodes", "token", "--reusable")
    pid = json.loads(site.eunomia("slurm", "status", "--json"))["head"]["pid"]
    os.kill(pid, signal.SIGKILL)
    wait(lambda: json.loads(site.eunomia("slurm", "status", "--json"))["head"] is None, "the head is dead")
    site.up(nodes=2)
    assert running(site) == before
    tokens = json.loads(site.eunomia("nodes", "tokens", "--json"))["tokens"]
    assert [token["state"] for token in tokens] == ["revoked", "reusable", "reusable"], "the operator's stays"
    wait(lambda: site.app()["state"] == "finished", "the search finishes", 900.0)
    site.eunomia("slurm", "down")
    assert site.left() == []
    assert [str(finding) for finding in check_folder(site.state, over=True).findings] == []


def test_the_first_step_comes_soon_after_up(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    first = site.folder / "first_step"
    begin = (
        f"import contextlib\n\nwith contextlib.suppress(FileExistsError):\n    open({str(first)!r}, 'x').close()\n\n\n"
    )
    train = WORKER.read_text(encoding="utf-8")
    assert train.count("class Orders:") == 1, "what stands before it are imports"
    (site.folder / "train.py").write_text(train.replace("class Orders:", f"{begin}class Orders:"), encoding="utf-8")
    began = time.time()
    site.up(nodes=1)
    served = time.time()
    wait(all_up(site, 1), "a node is up")
    joined = time.time()
    site.search(iterations=200, seconds=0.02)
    wait(first.exists, "a worker begins its first step")
    stepped = first.stat().st_mtime
    (times,) = site.lab.call("squeue", "-h", "-o", "%V %S").splitlines()
    submitted, started = map(datetime.fromisoformat, times.split())
    seconds = {
        "from up to the first step": stepped - began,
        "until up returned": served - began,
        "then until the node was up": joined - served,
        "then until the first step": stepped - joined,
        "of these in Slurm's queue, in whole seconds": (started - submitted).total_seconds(),
    }
    with capsys.disabled():
        sys.stdout.write("".join(f"\n{value:6.1f} s {name}" for name, value in seconds.items()) + "\n")
    assert seconds["from up to the first step"] < 60.0
    assert "pending" not in site.eunomia("nodes")


def test_a_job_that_waits_is_shown_by_nodes_and_its_folder_is_not_served_otherwise(site: Site) -> None:
    other = ["--nodelist", "gpu1", "--gres", "gpu:4", "--time", "10", "--wrap", "sleep 600"]
    blocker = site.lab.call("sbatch", "--parsable", *other).strip()
    made = json.loads(
        site.eunomia(
            "slurm",
            "up",
            "--json",
            "--nodes",
            "1",
            "--gres",
            "gpu:4",
            "--cpu-slots",
            "2",
            "--time",
            "30m",
            "--port",
            str(free_ports(1)[0]),
            "--node-dir",
            str(site.node_dir),
            "--",
            "--nodelist=gpu1",
        )
    )
    (node,) = made["nodes"]
    assert any("KillWait 5 s" in note for note in made["notes"]) and made["request"]["least"] == 1
    wait(lambda: f"1 asked of slurm: job {node['job']}, pending: " in site.eunomia("nodes"), "nodes shows it", 90.0)
    assert json.loads(site.eunomia("nodes", "--json"))["asked"][0]["id"] == node["job"]
    os.kill(made["head"]["pid"], signal.SIGKILL)
    assert "must be served by `eunomia slurm up`" in site.eunomia("serve", "--cpu-only", fails=True)
    site.lab.call("scancel", blocker)
    down = json.loads(site.eunomia("slurm", "down", "--json"))
    assert (down["head"], down["nodes"]) == (None, [])
    assert site.left() == []
    assert not (site.state / "engine" / "note.json").exists()
