"""Two launchers on one host, with folders of their own, under one arbiter: joins at run time, kills, restarts."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import client, eventually, ready, supervisor

from eunomia import cli
from eunomia_appmaster import Client
from eunomia_appmaster.node.supervisor import Supervisor

_floors = serving_lab.floors


class Annex:
    """A launcher of a second node on this host."""

    def __init__(self, made: Supervisor, folder: Path, node: str = "annex", slots: int = 1) -> None:
        self._made, self._folder, self.node, self._slots = made, folder, node, slots
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the launcher."""
        command = [sys.executable, "-m", "eunomia.cli", "launcher", "--state", str(self._made.state_dir)]
        command += ["--node-dir", str(self._folder / self.node), "--node", self.node, "--slots", str(self._slots)]
        command += ["--arbiter", self._made.address, "--token-file", str(self._made.run_dir / "launcher.token")]
        with (self._folder / f"{self.node}.log").open("ab") as log:
            env = {**os.environ, "EUNOMIA_LOG": "info"}
            self.process = subprocess.Popen([*command, "--cpu-only"], stdout=log, stderr=log, env=env)
        return self.process

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the launcher."""
        self.process.send_signal(number)
        self.process.wait(30)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Supervisor]:
    with supervisor(tmp_path) as one:
        yield one


@pytest.fixture
def annex(made: Supervisor, tmp_path: Path) -> Iterator[Annex]:
    one = Annex(made, tmp_path)
    yield one
    if one.process.poll() is None:
        one.end()


def alive(arbiter: Client) -> dict[str, bool]:
    return {node.node: node.alive for node in arbiter.health().nodes}


def test_a_second_launcher_joins_and_a_killed_arbiter_knows_it_after_recovery(made: Supervisor, annex: Annex) -> None:
    with client(made) as arbiter:
        (head,) = [node for node in alive(arbiter) if node != "annex"]
        eventually(lambda: alive(arbiter).get("annex"), "it joined")
        said, banner = annex._folder / "annex.log", f"annex: 1 cpu; joined the arbiter at {made.address}; Ctrl-C stops"
        eventually(lambda: banner in said.read_text().splitlines(), "it says so")
        assert arbiter.health().slots == 3
        assert made.arbiter is not None and made.arbiter.pid is not None
        before = made.arbiter.pid
        os.kill(before, signal.SIGKILL)
        eventually(lambda: made.arbiter.pid not in (None, before) and ready(arbiter), "another arbiter")
        eventually(lambda: alive(arbiter) == {head: True, "annex": True}, "both came back")
        assert (arbiter.health().slots, arbiter.health().free_slots) == (3, 3)


def test_the_launcher_of_a_second_node_can_be_killed_and_restarted(made: Supervisor, annex: Annex) -> None:
    with client(made) as arbiter:
        eventually(lambda: alive(arbiter).get("annex"), "it joined")
        slots = [(slot.machine, slot.slot) for slot in arbiter.list(slots=True).slots]
        annex.end(signal.SIGKILL)
        said = annex._folder / "annex.log"
        before = said.read_text().count('"node.registered"')
        annex.start()
        eventually(lambda: len(arbiter.health().nodes) == 2 and alive(arbiter)["annex"], "it is back")
        assert [(slot.machine, slot.slot) for slot in arbiter.list(slots=True).slots] == slots
        eventually(lambda: said.read_text().count('"node.registered"') > before, "the second launcher has registered")
        annex.end()
        why = "its launcher was ended; its slots are used again once it is back"
        eventually(lambda: [(node.state, node.why) for node in arbiter.nodes()][1] == ("down", why), "its end is seen")
        annex.start()
        eventually(lambda: alive(arbiter)["annex"], "it is back again")
        assert made.launcher is not None
        assert made.launcher.failure is None


def test_commands_list_drain_and_remove_a_node_and_its_launcher_ends(
    made: Supervisor, annex: Annex, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--state-dir", str(made.state_dir))

    def said(*words: str) -> str:
        capsys.readouterr()
        assert cli.run(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    with client(made) as arbiter:
        eventually(lambda: alive(arbiter).get("annex"), "it joined")
    head, row = eventually(lambda: (lines := said("nodes", *where).splitlines()[1:])[1:] and lines, "two nodes")
    assert head.split()[1:4] == ["up", "2", "cpu"]
    assert row.split()[:4] == ["annex", "up", "1", "cpu"]
    assert said("nodes", "drain", "annex", "--why", "ana: maintenance", *where).splitlines()[1].split()[1] == "drained"
    assert "ana: maintenance" in said("nodes", *where)
    seen = json.loads(said("nodes", "--json", *where))
    assert [(node["node"], node["state"]) for node in seen["nodes"]][1] == ("annex", "drained")
    said("nodes", "undrain", "annex", *where)
    assert said("nodes", "remove", "annex", *where) == "annex: removed\n"
    assert annex.process.wait(30) == 0, "a service manager does not start it again"
    assert "annex: removed from the cluster; what ran here has ended" in (annex._folder / "annex.log").read_text()
    annex.start()
    eventually(lambda: "annex" in said("nodes", *where), "it joined again")


def test_the_arbiter_continues_without_the_node_of_its_own_machine(made: Supervisor, annex: Annex) -> None:
    with client(made) as arbiter:
        eventually(lambda: alive(arbiter).get("annex"), "it joined")
        (head,) = [node for node in alive(arbiter) if node != "annex"]
        assert made.launcher is not None
        arbiter.remove_node(head)
        eventually(lambda: not made.launcher._thread.is_alive(), "its launcher has ended, and is not started again")
        made.check()
        assert alive(arbiter) == {"annex": True}
        assert arbiter.health().slots == 1


def test_an_arbiter_without_a_launcher_waits_for_the_first_node(tmp_path: Path) -> None:
    with supervisor(tmp_path, launcher=False) as made, client(made) as arbiter:
        assert not arbiter.health().ready
        annex = Annex(made, tmp_path)
        eventually(lambda: ready(arbiter), "ready")
        assert alive(arbiter) == {"annex": True}
        assert not list((made.state_dir / "launcher").glob("*"))
        annex.end()


def test_a_refused_launcher_prints_only_the_refusal_and_leaves_no_files(made: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    apps = made.state_dir / "apps"
    with client(made) as arbiter:
        (tmp_path / "join").write_text(arbiter.make_join_token().text)
        (tmp_path / "join").chmod(0o600)

    def refused(node: str, apps: Path, *options: str) -> str:
        own = tmp_path / node
        command = [sys.executable, "-m", "eunomia.cli", "launcher", "--apps", str(apps), "--node-dir", str(own)]
        command += ["--node", node, "--cpu-only", "--arbiter", made.address, *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (ended.returncode, ended.stdout) == (2, "")
        group = f"eunomia-{hashlib.sha256(str(own).encode()).hexdigest()[:12]}"
        assert not [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names if name == group]
        return ended.stderr.removesuffix("\n")

    paced = refused("b06", apps, "--slot-types", "2x fast:0.5", "--control-groups", "none")
    assert paced.startswith("error: paced slots need control groups with the controller cpu")
    without = refused("b07", apps)
    assert without.startswith("error: a launcher must have a token") and not (tmp_path / "b07").exists()
    storage = refused("b08", tmp_path / "other", "--join", str(tmp_path / "join"))
    assert storage.startswith("error: a node must see the folder of apps' folders of the arbiter")
    assert "\n" not in paced + without + storage
    assert not (tmp_path / "b06").exists()


@pytest.mark.slow
def test_an_app_that_waits_for_machines_starts_once_they_have_joined(
    made: Supervisor, annex: Annex, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--state-dir", str(made.state_dir))
    (tmp_path / "train.py").write_text(serving_lab.SCRIPT)
    file = tmp_path / "wide.toml"
    file.write_text(f'[app]\nname = "wide"\n[job]\ncommand = "{sys.executable} train.py"\nslots = 4\n')
    with client(made) as arbiter:
        eventually(lambda: arbiter.health().slots == 3, "annex joined")
        assert cli.run(("submit", str(file), *where)) == 2
        assert "a gang of 4 where at most 3 slots were at once" in capsys.readouterr().err
        assert cli.run(("submit", "--wait-for-machines", str(file), *where)) == 0
        lacks = "No job of it can start: it needs 4 slots, and the cluster has 3, and never had more than 3 at once."
        assert lacks in capsys.readouterr().out
        eventually(lambda: arbiter.app("wide").waiting == 1, "its job waits")
        barn = Annex(made, tmp_path, node="barn")
        try:
            eventually(lambda: arbiter.app("wide").running == 1, "its job runs")
            assert arbiter.app("wide").waits_for == ""
            (tmp_path / "end").touch()
            eventually(lambda: arbiter.app("wide").state == "finished", "it has ended")
        finally:
            barn.end()
