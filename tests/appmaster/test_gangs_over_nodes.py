"""Apps on two launchers of one host, under one arbiter: jobs on both nodes, gangs over both, a node that is lost."""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import activity, client, eventually, live, supervisor, tiny_app, went_on
from tests.appmaster.test_two_nodes import Annex

from eunomia_appmaster import Client
from eunomia_appmaster.node.supervisor import Supervisor

_floors = serving_lab.floors
DIGITS = Path(__file__).with_name("training_digits.py")
SILENCE = ("--not-durable", "--heartbeat-seconds", "0.3", "--node-silence-seconds", "2")
SILENCE += ("--node-lease-seconds", "2")
TOLERANCE = 1e-6


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Supervisor]:
    """A node with one slot; another with one joins."""
    with supervisor(tmp_path, slots=1, arbiter_options=SILENCE) as one:
        yield one


@pytest.fixture
def annex(made: Supervisor, tmp_path: Path) -> Iterator[Annex]:
    one = Annex(made, tmp_path)
    with client(made) as arbiter:
        eventually(lambda: [node.alive for node in arbiter.health().nodes] == [True, True], "it joined")
    yield one
    if one.process.poll() is None:
        one.end()


def containers(folder: Path, app: str) -> list[dict[str, Any]]:
    """Records of the workers of an app that a launcher, whose own files are in a folder, remembers."""
    records = (json.loads(path.read_text()) for path in (folder / "live").glob(f"{app}.*/container.json"))
    return sorted(
        (record for record in records if record["slot"] != -1), key=lambda record: str(record["container_id"])
    )


def ranks(folder: Path, app: str) -> list[int]:
    return [record["status"].get("rank", 0) for record in containers(folder, app)]


def wide_app(folder: Path, name: str, *, iterations: int, slots: str = "2") -> Path:
    file = tiny_app(folder, name, iterations=iterations, seconds=0.01)
    file.write_text(file.read_text().replace("slots = 1", f"slots = {slots}"))
    return file


def over(arbiter: Client, app: str) -> str:
    eventually(lambda: arbiter.app(app).state in ("finished", "failed"), f"the end of {app}")
    return arbiter.app(app).state


def test_jobs_run_on_both_nodes_and_a_gang_over_both(made: Supervisor, annex: Annex, tmp_path: Path) -> None:
    head = made.state_dir / "launcher"
    with client(made) as arbiter:
        arbiter.submit(tiny_app(tmp_path, "search", iterations=60, seconds=0.01, searches=True))
        arbiter.submit(wide_app(tmp_path, "wide", iterations=60))
        assert (over(arbiter, "search"), over(arbiter, "wide")) == ("finished", "finished")
        assert ranks(head, "search")
        assert ranks(tmp_path / "annex", "search")
        assert sorted(ranks(head, "wide") + ranks(tmp_path / "annex", "wide")) == [0, 1]
        assert len(ranks(head, "wide")) == 1
        eventually(lambda: arbiter.health().free_slots == 2, "all slots are free")


@pytest.mark.slow
def test_a_gang_restarts_from_its_checkpoint_when_one_of_its_nodes_is_lost(
    made: Supervisor, annex: Annex, tmp_path: Path
) -> None:
    with client(made) as arbiter, contextlib.ExitStack() as taken:
        arbiter.submit(wide_app(tmp_path, "wide", iterations=500))
        eventually(lambda: went_on(made, "wide"), "steps")
        annex.end(signal.SIGKILL)
        host, _, port = json.loads((tmp_path / "annex" / "launcher.json").read_text())["address"].rpartition(":")
        taken.enter_context(socket.create_server((host, int(port))))  # it comes back at another address
        (worker,) = containers(tmp_path / "annex", "wide")  # it lives on: its launcher ends it once it is back
        eventually(lambda: [line for line in activity(made, "wide") if line["event"] == "failed"], "the gang has ended")
        annex.start()
        assert over(arbiter, "wide") == "finished"
        begun = [line["step"] for line in activity(made, "wide") if line["event"] in ("running", "resumed")]
        assert begun[0] == 0
        assert begun[-1] > 0
    with pytest.raises(ProcessLookupError):
        os.kill(worker["pid"], 0)


@pytest.mark.slow
def test_the_first_failure_of_a_gang_over_nodes_before_any_step_uses_no_retry(
    made: Supervisor, annex: Annex, tmp_path: Path
) -> None:
    with client(made) as arbiter:
        for name, more in (("once", " --fail-at 1 --fail-once"), ("always", " --fail-at 1")):
            file = tiny_app(tmp_path, name, iterations=30, seconds=0.01, more=more)
            file.write_text(file.read_text().replace("slots = 1", "slots = 2\nretries = 0"))
            arbiter.submit(file)
        assert (over(arbiter, "once"), over(arbiter, "always")) == ("finished", "failed")
        (notice,) = arbiter.app("once").standing.notices
        assert notice.startswith("once/1: its gang over ")
        assert " and annex made no step" in notice or "annex and " in notice
        assert len([line for line in activity(made, "always") if line["event"] == "start"]) == 2


@pytest.mark.slow
def test_a_gang_over_two_nodes_trains_like_a_single_worker(made: Supervisor, annex: Annex, tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "train.py")
    trained = {}
    with client(made) as arbiter:
        for name, slots in (("one", 1), ("both", 2)):
            final = tmp_path / f"{name}.pt"
            file = tmp_path / f"{name}.toml"
            command = f"{sys.executable} train.py --epochs 4 --final {final}"
            file.write_text(f'[app]\nname = "{name}"\n[job]\ncommand = "{command}"\nslots = {slots}\n')
            arbiter.submit(file)
            assert over(arbiter, name) == "finished"
            trained[name] = torch.load(final, weights_only=True)
    assert len(ranks(tmp_path / "annex", "both")) == 1
    one, both = trained["one"], trained["both"]
    assert one["step"] == both["step"] > 0
    assert max(float((one["model"][name] - both["model"][name]).abs().max()) for name in one["model"]) < TOLERANCE


@pytest.mark.slow
def test_a_gang_over_nodes_continues_while_a_launcher_or_its_app_master_restarts(tmp_path: Path) -> None:
    with supervisor(tmp_path, slots=1) as made, client(made) as arbiter:
        annex = Annex(made, tmp_path)
        eventually(lambda: [node.alive for node in arbiter.health().nodes] == [True, True], "it joined")
        arbiter.submit(wide_app(tmp_path, "wide", iterations=800))
        eventually(lambda: went_on(made, "wide"), "steps")
        annex.end(signal.SIGKILL)
        annex.start()
        ((_, master),) = live(made, masters=True)
        os.kill(master, signal.SIGKILL)
        assert over(arbiter, "wide") == "finished"
        assert [line["event"] for line in activity(made, "wide") if line["event"] in ("start", "failed")] == ["start"]
        assert len(ranks(tmp_path / "annex", "wide")) == 1
        annex.end()


@pytest.mark.slow
def test_slots_on_an_unresponsive_node_are_returned_and_users_see_the_reason(tmp_path: Path) -> None:
    with supervisor(tmp_path, slots=1) as made, client(made) as arbiter:
        annex = Annex(made, tmp_path)
        eventually(lambda: [node.alive for node in arbiter.health().nodes] == [True, True], "it joined")
        annex.process.send_signal(signal.SIGSTOP)
        try:
            arbiter.submit(tiny_app(tmp_path, "search", iterations=900, seconds=0.01, searches=True))
            left_out = "search gets no slots on annex: "
            eventually(lambda: [line for line in arbiter.list().warnings if line.startswith(left_out)], "it is said")
            eventually(lambda: ranks(made.state_dir / "launcher", "search"), "jobs run on the other node")
        finally:
            annex.process.send_signal(signal.SIGCONT)
        eventually(lambda: ranks(tmp_path / "annex", "search"), "jobs run on both nodes")
        eventually(lambda: not [line for line in arbiter.list().warnings if line.startswith(left_out)], "no longer")
        assert not arbiter.app("search").standing.notices
        assert not [line for line in activity(made, "search") if line["event"] == "failed"]
        annex.end()
