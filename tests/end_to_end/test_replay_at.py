"""`eunomia replay --at` on an arbiter of `eunomia serve` that goes on: interrupted once, resumed, twice repeated."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from tests.appmaster.serving_lab import eventually, ready
from tests.end_to_end.test_replay import RATE, command, write_inputs

from eunomia.errors import UnreachableError
from eunomia_appmaster import Client
from eunomia_testbed.results import RunData

LIMIT_SECONDS = 900.0
JOBS = 4
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * LIMIT_SECONDS)]
OTHER = f"""
[app]
name = "other"
user = "ana"
[job]
command = "{sys.executable} -c 'import time; time.sleep(600)'"
slots = 1
max_iterations = 1
"""


def connected(state: Path) -> Client | None:
    try:
        client = Client(state_dir=state)
    except UnreachableError:
        return None
    return client if ready(client) else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace of four jobs of two users, and profiles."""
    made = tmp_path_factory.mktemp("at")
    trace, _ = write_inputs(made)
    trace.write_text("\n".join([*trace.read_text().splitlines()[: JOBS + 1], ""]))
    return made


@pytest.fixture(scope="module")
def arbiter(folder: Path) -> Iterator[Client]:
    """A client of an arbiter with four CPU slots."""
    options = ("--slots", "4", "--cpu-only", "--policy", "default", "--address", "127.0.0.1:0", "--state-dir")
    served = subprocess.Popen(
        [sys.executable, "-c", "from eunomia.cli import main; main()", "serve", *options, str(folder / "state")],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "serve.log").open("w"),
    )
    try:
        client = eventually(lambda: connected(folder / "state"), "the arbiter")
        assert client is not None
        with client:
            yield client
    finally:
        served.send_signal(signal.SIGTERM)
        served.wait(LIMIT_SECONDS)


def options(folder: Path, arbiter: Client, *more: str) -> list[str]:
    at = ("--at", arbiter.address, "--state-dir", str(folder / "state"))
    sizes = ("--speed", "100x", "--budget", "2m", "--anyway", "--profiles", str(folder / "profiles.toml"))
    return command(str(folder / "trace.csv"), *at, *sizes, *more)


def refused(folder: Path, arbiter: Client, *more: str) -> str:
    done = subprocess.run(
        options(folder, arbiter, *more), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def live(arbiter: Client) -> list[str]:
    return [app.app for app in arbiter.list(ended=False).apps]


@pytest.fixture(scope="module")
def replayed(folder: Path, arbiter: Client) -> tuple[Path, str, dict[str, object]]:
    """The folder of a replay with two repeats; what it said when it was interrupted, and its outcome at the end."""
    out = folder / "out"
    process = subprocess.Popen(
        options(folder, arbiter, "--repeats", "2", "--out", str(out)), stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(live(arbiter)) < 2:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert sorted(user.user for user in arbiter.users()) == ["u0", "u1"]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 130, said
    assert live(arbiter) == []
    assert list(arbiter.users()) == []
    done = subprocess.run(
        command("--resume", str(out), "--json"), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out, said, json.loads(done.stdout)


def test_an_arbiter_that_serves_others_is_refused(folder: Path, arbiter: Client) -> None:
    arbiter.submit(folder / "other.toml", text=OTHER)
    try:
        assert "or --shared must stand, but got 1 live app: other (--at)" in refused(folder, arbiter)
    finally:
        arbiter.cancel("other")
        arbiter.wait("other", "1m")


def test_a_user_cannot_add_users_but_can_own_all_jobs(folder: Path, arbiter: Client) -> None:
    token = folder / "token"
    token.write_text(arbiter.add_user("bob").token)
    try:
        env = {"EUNOMIA_TOKEN_FILE": str(token)}
        done = subprocess.run(
            options(folder, arbiter),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
            env={**os.environ, **env},
        )
        assert done.returncode == 2
        assert "must be added by the operator's token, or --as-me must stand" in done.stderr
    finally:
        arbiter.remove_user("bob")


def test_ctrl_c_cancels_its_apps_and_removes_its_users(replayed: tuple[Path, str, dict[str, object]]) -> None:
    out, said, _ = replayed
    assert "interrupted: 0 of 2 runs are done" in said
    assert f"eunomia replay --resume {out} goes on" in said


def test_all_jobs_finish_under_their_own_names(replayed: tuple[Path, str, dict[str, object]], arbiter: Client) -> None:
    out, _, plain = replayed
    assert (plain["ended"], plain["runs"], plain["done"]) == ("finished", 2, 2)
    data = RunData.load(out / "real")
    assert data.apps.height == 2 * JOBS
    assert set(data.apps["state"]) == {"finished"}
    assert sorted(set(data.apps["app"])) == [f"job{job}" for job in range(JOBS)]
    assert set(data.apps["user"]) == {"u0", "u1"}
    iterations = dict(zip(data.jobs["job"], data.jobs["iterations"], strict=True))
    assert iterations == {f"job{job}": int(RATE) * (4 + job % 3) for job in range(JOBS)}
    assert live(arbiter) == []
    assert list(arbiter.users()) == []
    assert arbiter.health().free_slots == 4


def test_figures_and_differences_are_there(replayed: tuple[Path, str, dict[str, object]]) -> None:
    out, _, plain = replayed
    table = pl.read_csv(out / "real-and-simulated.csv")
    both = table.filter(pl.col("metric").is_in(["makespan_seconds", "jct_mean_seconds", "rho_unfair_share"]))
    assert both.height == 3
    assert both["real"].null_count() == both["simulated"].null_count() == 0
    assert pl.read_csv(out / "fidelity.csv").height > 0
    invalid = plain["invalid"]  # a busy machine gives slots less than their pace
    assert isinstance(invalid, list)
    assert not [line for line in invalid if "others" in line or "machines" in line or "fallback" in line]
    notes = json.loads((out / "run.json").read_text())["notes"]
    assert any("is the policy of the arbiter at" in note for note in notes)
