"""A machine that has joined under TLS runs jobs of the arbiter's apps, and its part of a gang over two nodes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import client, eventually, supervisor, tiny_app
from tests.appmaster.test_gangs_over_nodes import over, ranks, wide_app

from eunomia_appmaster.launcher.files import read_json
from eunomia_appmaster.launcher.node import LIMITS
from eunomia_appmaster.node.supervisor import Supervisor
from eunomia_appmaster.service.certificates import make

_floors = serving_lab.floors


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Supervisor]:
    """An arbiter under TLS with a node of one slot."""
    options = ("--not-durable", "--heartbeat-seconds", "0.3", "--log-mib", "3")
    with supervisor(tmp_path, slots=1, certificates=make(tmp_path / "tls"), arbiter_options=options) as one:
        yield one


@pytest.fixture
def joined(made: Supervisor, tmp_path: Path) -> Iterator[Path]:
    """The folder of a second node with one slot, which joins with a token alone."""
    with client(made) as arbiter:
        token = arbiter.make_join_token().text
    folder = tmp_path / "joined"
    command = [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(made.state_dir)]
    command += ["--node-dir", str(folder), "--node", "b08", "--slots", "1", "--cpu-only", "--no-zygote"]
    command += ["--arbiter", made.address, "--join", "-"]
    with (tmp_path / "joined.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    assert process.stdin is not None
    process.stdin.write(token.encode())
    process.stdin.close()
    with client(made) as arbiter:
        eventually(lambda: [node.alive for node in arbiter.health().nodes] == [True, True], "it joined")
    yield folder
    process.terminate()
    process.wait(30)


def test_jobs_and_a_gang_run_on_a_machine_that_has_joined(made: Supervisor, joined: Path, tmp_path: Path) -> None:
    with client(made) as arbiter:
        arbiter.submit(tiny_app(tmp_path, "search", iterations=60, seconds=0.01, searches=True))
        arbiter.submit(wide_app(tmp_path, "wide", iterations=60))
        assert (over(arbiter, "search"), over(arbiter, "wide")) == ("finished", "finished")
    assert ranks(joined, "search")
    assert read_json(joined / LIMITS) == read_json(made.state_dir / "launcher" / LIMITS)
    assert sorted(ranks(made.state_dir / "launcher", "wide") + ranks(joined, "wide")) == [0, 1]
