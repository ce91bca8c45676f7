"""A machine that has joined under TLS runs jobs of the arbiter's apps, and its part of a gang over two nodes."""

import os
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
    command, apps = [], made.state_dir / "apps"
    if os.geteuid() == 0:  # the storage that both share stands elsewhere on the second machine
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        mounts = f"mount --bind {apps} {elsewhere} && mount -t tmpfs none {apps}"
        command, apps = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh"], elsewhere
    command += [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(folder), "--apps", str(apps)]
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


def seen(joined: Path, apps: Path, tmp_path: Path) -> Path:
    """The links to the second node's containers as they are seen from the first, which has the storage elsewhere."""
    (tmp_path / "seen" / "live").mkdir(parents=True)
    for link in (joined / "live").iterdir():
        there = str(link.readlink()).replace(str(tmp_path / "elsewhere"), str(apps))
        (tmp_path / "seen" / "live" / link.name).symlink_to(there)
    return tmp_path / "seen"


def test_single_jobs_and_a_gang_run_on_a_joined_machine(made: Supervisor, joined: Path, tmp_path: Path) -> None:
    with client(made) as arbiter:
        arbiter.submit(tiny_app(tmp_path, "search", iterations=60, seconds=0.01, searches=True))
        arbiter.submit(wide_app(tmp_path, "wide", iterations=60))
        assert (over(arbiter, "search"), over(arbiter, "wide")) == ("finished", "finished")
    there = seen(joined, made.state_dir / "apps", tmp_path)
    assert ranks(there, "search")
    assert read_json(joined / LIMITS) == read_json(made.state_dir / "launcher" / LIMITS)
    assert sorted(ranks(made.state_dir / "launcher", "wide") + ranks(there, "wide")) == [0, 1]
