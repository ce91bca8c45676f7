"""``eunomia tensorboard`` as a process, on the logs of a search that real workers write."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from tests.appmaster.serving_lab import client, eventually, floors, supervisor

from eunomia import cli, extras
from eunomia_appmaster.commands.tensorboard import log_folders

__all__ = ["floors"]
WORKER = Path(__file__).parent.parent / "appmaster" / "tiny_worker.py"
SEARCH = f"""
[app]
name = "lrs"
[job]
command = "{sys.executable} train.py {{args}} --seconds 0.01"
slots = 1
max_iterations = 30
[space]
lr = {{ type = "categorical", choices = [0.1, 0.3, 0.4] }}
[tuner]
metric = "val/accuracy"
sampler = "grid"
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder of an arbiter that has served a search."""
    folder = tmp_path_factory.mktemp("searched")
    shutil.copy(WORKER, folder / "train.py")
    (folder / "app.toml").write_text(SEARCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        with supervisor(folder) as made, client(made) as arbiter:
            assert arbiter.submit(folder / "app.toml").wait("2m").state == "finished"
    return folder / "state"


@contextmanager
def board(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    """The command as a process, and the line that it printed."""
    command = [sys.executable, "-m", "eunomia", "tensorboard", *words, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out: IO[str] | None = process.stdout
        assert out is not None
        try:
            yield process, json.loads(out.readline())
        finally:
            process.kill()


def runs_at(url: object) -> list[str]:
    with urllib.request.urlopen(f"{url}data/runs", timeout=20) as answer:
        return sorted(json.load(answer))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_each_trial_is_shown_as_a_run_until_the_command_is_interrupted(searched: Path, how: signal.Signals) -> None:
    trials = ["lrs/1", "lrs/2", "lrs/3"]
    with board("lrs", "--run", str(searched)) as (process, said):
        assert (said["schema"], said["app"], said["runs"]) == ("eunomia/tensorboard@1", "lrs", trials)
        assert str(said["url"]).startswith("http://127.0.0.1:")
        eventually(lambda: runs_at(said["url"]) == trials, "all runs")
        process.send_signal(how)
        assert process.wait(20) == 0


def test_the_arbiter_names_the_log_folder_and_an_app_without_logs_is_refused(
    searched: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: str) -> str:
        capfd.readouterr()
        assert cli.run(["tensorboard", *words]) == 2
        return capfd.readouterr().err

    with supervisor(searched.parent) as made:
        place = ("--state-dir", str(made.state_dir))
        with board("lrs", *place) as (_, said):
            assert said["runs"] == ["lrs/1", "lrs/2", "lrs/3"]
            taken = str(said["url"]).rstrip("/").rpartition(":")[2]
            assert f"--port must be free, but got {taken}" in refused("lrs", *place, "--port", taken)
        assert 'no app is named "lr"; there are: lrs; did you mean "lrs"?' in refused("lr", *place)
    assert 'no app is named "nets"; there are: lrs' in refused("nets", "--run", str(searched))
    assert 'no app is named "lrs"; there are none' in refused("lrs", "--run", str(tmp_path))
    (tmp_path / "apps" / "new" / "1" / "logs").mkdir(parents=True)
    said = refused("new", "--run", str(tmp_path))
    assert f"an app must have logged something to be shown in TensorBoard, but got no logs of new in {tmp_path}" in said
    assert "Invalid value for '--port'" in refused("lrs", "--port", "70000")
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "tensorboard")
    assert "eunomia tensorboard needs the extra \"live\": pip install 'eunomia[live]'" in refused("lrs")


def test_a_trial_that_has_not_logged_is_left_out(tmp_path: Path) -> None:
    for trial, names in {"1": ["events.out.tfevents.1.a"], "2": [], "x": ["events.out.tfevents.1.a"]}.items():
        (tmp_path / trial / "logs").mkdir(parents=True)
        for name in names:
            (tmp_path / trial / "logs" / name).write_bytes(b"")
    assert log_folders(tmp_path) == {1: tmp_path / "1" / "logs"}
    assert log_folders(tmp_path / "none") == {}
