"""Jobs that change their size live under a real arbiter: leases grow and shrink; the journal is checked."""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import activity, client, eventually, live, supervisor

from eunomia.errors import UnreachableError
from eunomia_appmaster import Client
from eunomia_appmaster.explaining.past_runs import PastRun
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.journal_check.reading import Rows
from eunomia_appmaster.node.supervisor import Supervisor

_floors = serving_lab.floors


def _app(folder: Path, name: str, *, steps: int, more: str = "") -> Path:
    shutil.copy(Path(__file__).with_name("live_script.py"), folder / "live_script.py")
    command = f"{sys.executable} live_script.py --steps {steps} {more}".rstrip()
    job = f"[job]\ncommand = '{command}'\nslots = {{ min = 1, max = 2 }}\nmax_iterations = {steps}\nelastic = 'live'\n"
    file = folder / f"{name}.toml"
    file.write_text(f"[app]\nname = '{name}'\n{job}")
    return file


def _confirmed(folder: Path) -> list[tuple[str, str]]:
    """The kind of each confirmation of a lease in the journal, and the lease's app."""
    with Rows(folder / "journal.sqlite", lambda _: None) as rows:
        steps = list(rows.steps())
    apps = {order["lease"]: order["app"] for step in steps for order in step.decision.get("transitions", ())}
    events = [event for step in steps for event in step.events]
    return [(event["is"], apps[event["lease"]]) for event in events if event["is"] in ("Started", "Resized")]


@pytest.mark.slow
def test_a_job_shrinks_for_another_and_grows_after_it_without_a_restart(tmp_path: Path) -> None:
    with supervisor(tmp_path, policy="max_min") as made, client(made) as arbiter:
        arbiter.submit(_app(tmp_path, "long", steps=10**9))
        eventually(lambda: [line for line in activity(made, "long") if line["event"] == "running"], "it runs")
        arbiter.submit(_app(tmp_path, "short", steps=300))
        eventually(lambda: arbiter.app("short").state == "finished", "the short app's end")
        sizes = lambda: [len(line["slots"]) for line in activity(made, "long") if line["event"] == "resized"]  # noqa: E731
        eventually(lambda: sizes() == [1, 2], "it shrinks, and grows")
        orders = [line["why"] for line in activity(made, "long") if " ordered: " in line.get("why", "")]
        assert orders[0].startswith("shrink 2 -> 1 ordered: its lease has 1 slot, decided when an app or a job arrived")
        assert orders[-1].startswith("grow 1 -> 2 ordered: its lease has 2 slots, decided when ")
        assert len([line for line in activity(made, "long") if line["event"] == "start"]) == 1
        resized = ("Resized", "long")
        eventually(lambda: _confirmed(made.state_dir).count(resized) == 2, "the arbiter knows it")
        spells = PastRun(made.state_dir).history("long/1")
        assert [(spell.state, spell.slots) for spell in spells if spell.slots] == [("running", n) for n in (2, 1, 2)]
        assert "starting" not in [spell.state for spell in spells[-3:]], "a live change is no start"
        report = check_folder(made.state_dir)
        assert report.findings == []


@pytest.mark.slow
def test_a_job_that_restarts_on_fewer_slots_says_in_which_round_that_was_decided(tmp_path: Path) -> None:
    with supervisor(tmp_path, policy="max_min") as made, client(made) as arbiter:
        for name, seconds in (("long", 1000), ("short", 5)):
            file = tmp_path / f"{name}.toml"
            file.write_text(
                f"[app]\nname = '{name}'\n[job]\ncommand = 'sleep {seconds}'\nslots = {{ min = 1, max = 2 }}\n"
            )
            arbiter.submit(file)
            eventually(lambda name=name: [one for one in activity(made, name) if one["event"] == "start"], "it starts")
        suspended = lambda: [line["why"] for line in activity(made, "long") if line["event"] == "suspended"]  # noqa: E731
        why = eventually(suspended, "it restarts")[0]
        assert why.endswith(", decided when an app or a job arrived, or became able to run"), why
        eventually(lambda: arbiter.explain("long/1").starts == 2, "its second start")


@pytest.mark.slow
def test_a_job_whose_newcomers_do_not_fit_runs_on_while_its_slot_is_granted_and_given_back(tmp_path: Path) -> None:
    with supervisor(tmp_path, policy="max_min") as made, client(made) as arbiter:
        arbiter.submit(_app(tmp_path, "long", steps=10**9, more="--unfit"))
        eventually(lambda: [line for line in activity(made, "long") if line["event"] == "running"], "it runs")
        arbiter.submit(_app(tmp_path, "short", steps=300))
        eventually(lambda: arbiter.app("short").state == "finished", "the short app's end")
        eventually(lambda: [line for line in activity(made, "long") if line["event"] == "left_out"], "a newcomer")
        for _ in range(20):
            said = arbiter.explain("long/1")
            assert (said.state, said.starts) == ("running", 1)
            time.sleep(0.1)
        assert check_folder(made.state_dir).findings == []


@pytest.mark.slow
def test_a_job_that_is_cancelled_while_its_newcomer_starts_leaves_at_once(tmp_path: Path) -> None:
    with supervisor(tmp_path, policy="max_min") as made, client(made) as arbiter:
        arbiter.submit(_app(tmp_path, "long", steps=10**9, more="--slow"))
        eventually(lambda: [line for line in activity(made, "long") if line["event"] == "running"], "it runs")
        arbiter.submit(_app(tmp_path, "short", steps=100))
        eventually(lambda: arbiter.app("short").state == "finished", "the short app's end")
        eventually(lambda: len(live(made, masters=False)) == 2, "it has a newcomer")
        arbiter.cancel("long")
        eventually(lambda: not live(made, masters=False), "its workers have left")
        log = (tmp_path / "log" / "launcher.log").read_text()
        assert "not_told_to_leave" not in log, "they waited for an order of the app master, which had ended"


@pytest.mark.slow
def test_a_training_script_grows_and_shrinks_without_a_restart_and_its_parameters_agree(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("live_training_script.py"), tmp_path / "train.py")
    command = f"{sys.executable} train.py --steps 100000 --seconds 0.02"
    job = f"[job]\ncommand = '{command}'\nslots = {{ min = 1, max = 2 }}\nmax_iterations = 100000\nelastic = 'live'\n"
    (tmp_path / "long.toml").write_text(f"[app]\nname = 'long'\n{job}")
    with (
        supervisor(tmp_path, policy="max_min", launcher_options=("--stop-seconds", "2")) as made,
        client(made) as arbiter,
    ):
        arbiter.submit(tmp_path / "long.toml")
        eventually(lambda: [path for path in tmp_path.glob("steps.long.*") if path.stat().st_size], "it makes steps")
        arbiter.submit(_app(tmp_path, "short", steps=300))
        eventually(lambda: arbiter.app("short").state == "finished", "the short app's end")
        sizes = lambda: [len(line["slots"]) for line in activity(made, "long") if line["event"] == "resized"]  # noqa: E731
        eventually(lambda: sizes() == [1, 2], "it shrinks, and grows")
        steps = [json.loads(line) for path in tmp_path.glob("steps.long.*") for line in path.read_text().splitlines()]
        arbiter.cancel("long")
        assert {row["size"] for row in steps} == {1, 2}
        hashes = {(row["step"], row["hash"]) for row in steps}
        assert len(hashes) == len({row["step"] for row in steps}), "all workers of a step have equal parameters"
        assert len([line for line in activity(made, "long") if line["event"] == "start"]) == 1
        assert check_folder(made.state_dir).findings == []


def _victim(made: Supervisor, kind: str) -> int | None:
    """The pid of a process of a kind; None: there is none now."""
    if kind in ("arbiter", "launcher"):
        process = made.arbiter if kind == "arbiter" else made.launcher
        return None if process is None else process.pid
    workers = [pid for name, pid in live(made, masters=kind == "app master") if "long" in name and "store" not in name]
    return workers[-1] if workers else None


@pytest.mark.slow
def test_processes_that_are_killed_in_mid_change_cost_the_job_no_restart(tmp_path: Path) -> None:
    rng = random.Random(5)
    shutil.copy(Path(__file__).with_name("live_training_script.py"), tmp_path / "train.py")
    command = f"{sys.executable} train.py --steps 1000000 --seconds 0.02"
    job = f"[job]\ncommand = '{command}'\nslots = {{ min = 1, max = 2 }}\nmax_iterations = 1000000\nelastic = 'live'\n"
    (tmp_path / "long.toml").write_text(f"[app]\nname = 'long'\n{job}")
    options = ("--stop-seconds", "2")
    with supervisor(tmp_path, policy="max_min", launcher_options=options) as made, client(made) as arbiter:
        arbiter.submit(tmp_path / "long.toml")
        eventually(lambda: len(_rows(tmp_path)) > 20, "it makes steps")
        for number, kind in enumerate(("app master", "launcher", "arbiter", "worker")):
            eventually(lambda: _rows(tmp_path)[-1]["size"] == 2, "it has both slots")
            if kind != "worker":
                arbiter.submit(_app(tmp_path, f"short-{number}", steps=200))
                time.sleep(rng.uniform(0.0, 2.5))
            if (pid := _victim(made, kind)) is not None:
                os.kill(pid, signal.SIGKILL)
            if kind == "worker":  # with only one left, the job would start again
                arbiter.submit(_app(tmp_path, f"short-{number}", steps=200))
            eventually(lambda name=f"short-{number}": _state(arbiter, name) == "finished", "the short app's end")
            before = len(_rows(tmp_path))
            eventually(lambda least=before + 20: len(_rows(tmp_path)) > least, f"steps after a kill of the {kind}")
        eventually(lambda: _rows(tmp_path)[-1]["size"] == 2, "it has both slots")
        rows = _rows(tmp_path)
        arbiter.cancel("long")
        assert len({(row["step"], row["hash"]) for row in rows}) == len({row["step"] for row in rows})
        assert len([line for line in activity(made, "long") if line["event"] == "start"]) == 1
        assert check_folder(made.state_dir).findings == []


def _rows(folder: Path) -> list[dict[str, Any]]:
    """What the workers have written of each step, in order of time."""
    lines = [line for path in folder.glob("steps.long.*") for line in path.read_text().splitlines(keepends=True)]
    return sorted((json.loads(line) for line in lines if line.endswith("\n")), key=lambda row: float(row["ended"]))


def _state(arbiter: Client, app: str) -> str:
    try:
        return arbiter.app(app).state
    except UnreachableError:
        return ""
