"""App masters under the real arbiter and launcher: auctions, bids of their agents, a kill."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.appmaster.job_output import master_output
from tests.appmaster.serving_lab import supervisor

from eunomia_appmaster.app.master_folders import activity_files
from eunomia_appmaster.client import Client

HERE = Path(__file__).parent
SEARCH = """
[app]
name = "halving"
[job]
command = "python tiny_worker.py {args} --seconds 0.01"
slots = { min = 1, max = 2 }
max_iterations = 160
[space]
lr = { type = "categorical", choices = [0.1, 0.2, 0.3, 0.4] }
[tuner]
kind = "successive_halving"
metric = "val/accuracy"
trials = 4
sampler = "grid"
"""
GANG = """
[app]
name = "gang"
[job]
command = "python tiny_worker.py --seconds 0.01"
slots = 2
max_iterations = 300
"""
ROOTS = ":".join(str(HERE.parent.parent / root) for root in ("core", "solvers", "plugins", "appmaster", "hpo_adapters"))


@pytest.mark.timeout(400)
def test_apps_bid_run_and_end_although_an_app_master_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "tiny_worker.py").write_bytes((HERE / "tiny_worker.py").read_bytes())
    (work / "halving.toml").write_text(SEARCH)
    (work / "gang.toml").write_text(GANG)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PYTHONPATH", ROOTS)
    # Long enough for a worker to start and a bid to come on a slow machine; a round ends when all have bid.
    settings = ["rounds.lease=5s", "rounds.bid_deadline=20s"]
    with (
        supervisor(
            tmp_path,
            policy="demo",
            settings=settings,
            log_dir=tmp_path,
            launcher_options=["--no-zygote"],
            arbiter_options=(),
        ) as town,
        Client(town.address, token_file=town.token_file) as client,
    ):
        apps = tmp_path / "state" / "apps"
        client.submit("halving.toml")
        client.submit("gang.toml")
        kill_master(tmp_path / "state", "halving")
        deadline = time.monotonic() + 240.0
        while not all(app.state == "finished" for app in client.list().apps):
            assert time.monotonic() < deadline, client.list()
            time.sleep(0.2)
        assert client.app("halving").standing.best_job == "halving/3"
        assert not client.health().faults
    for app in ("halving", "gang"):
        said = [json.loads(line) for line in master_output(apps / app).splitlines()]
        assert [line for line in said if line["event"] == "bid.made"]
        assert not [line for line in said if line["event"] in ("bid.failed", "agent.none")]
    refused = [line["why"] for line in said if line["event"] == "bid.refused"]
    assert all("(none is open)" in why for why in refused), "a bid may only come too late, on a busy machine"
    started = [line for line in activity_files(apps / "gang")[-1].read_text().splitlines() if '"start"' in line]
    assert all(len(json.loads(line)["slots"]) == 2 for line in started)


def kill_master(state: Path, app: str) -> None:
    """Kill an app's master as soon as it has started something."""
    deadline = time.monotonic() + 120.0
    while not (activity_files(state / "apps" / app)[-1].exists() and (pid := pid_of_master(state, app))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)


def pid_of_master(state: Path, app: str) -> int:
    """Process id of an app's master; 0: it does not run now."""
    record = json.loads((state / "launcher" / "app_masters" / f"{app}.json").read_text())
    return int(record["status"].get("pid", 0))
