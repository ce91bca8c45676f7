"""Two launchers on one host, with folders of their own, under one arbiter: joins at run time, kills, restarts."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import client, eventually, ready, supervisor

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
        command = [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(self._made.state_dir)]
        command += ["--node-dir", str(self._folder / self.node), "--node", self.node, "--slots", str(self._slots)]
        command += ["--arbiter", self._made.address, "--token-file", str(self._made.run_dir / "launcher.token")]
        with (self._folder / f"{self.node}.log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--no-zygote", "--cpu-only"], stdout=log, stderr=log)
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


def test_a_second_launcher_joins_and_an_arbiter_killed_then_knows_it(made: Supervisor, annex: Annex) -> None:
    with client(made) as arbiter:
        (head,) = [node for node in alive(arbiter) if node != "annex"]
        eventually(lambda: alive(arbiter).get("annex"), "it joined")
        assert arbiter.health().slots == 3
        assert made.arbiter is not None and made.arbiter.pid is not None
        before = made.arbiter.pid
        os.kill(before, signal.SIGKILL)
        eventually(lambda: made.arbiter.pid not in (None, before) and ready(arbiter), "another arbiter")
        eventually(lambda: alive(arbiter) == {head: True, "annex": True}, "both came back")
        assert (arbiter.health().slots, arbiter.health().free_slots) == (3, 3)


def test_a_launcher_of_a_second_node_may_be_killed_and_comes_back(made: Supervisor, annex: Annex) -> None:
    with client(made) as arbiter:
        eventually(lambda: alive(arbiter).get("annex"), "it joined")
        slots = [(slot.machine, slot.slot) for slot in arbiter.list(slots=True).slots]
        annex.end(signal.SIGKILL)
        annex.start()
        eventually(lambda: len(arbiter.health().nodes) == 2 and alive(arbiter)["annex"], "it is back")
        assert [(slot.machine, slot.slot) for slot in arbiter.list(slots=True).slots] == slots
        head = made.launcher
        assert head is not None and head.failure is None
