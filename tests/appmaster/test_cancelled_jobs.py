"""A cancelled job ends in its events and explanations, though its app master writes nothing after the cancellation."""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import activity, client, eventually, supervisor

from eunomia import Cluster, Machine, Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, AppCancelled, JobAdded
from eunomia.journal.journal import Journal
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_appmaster.app.trials_file import TRIALS_COLUMNS
from eunomia_appmaster.master.files import ActivityLog
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.layout import Layout, Place

_floors = serving_lab.floors
BEGAN = 1_800_000_000.0
CANCELLED_AT = BEGAN + 30.0


@pytest.fixture
def cancelled(tmp_path: Path) -> Path:
    """The folder of a run in which ``ana`` is cancelled after 30 s, while its only job runs."""
    cluster = Cluster.build([Machine(name="box7", gpu_type="V100", gpus=1)])
    profile = Profile.load("default")
    arbiter = Arbiter(cluster, profile.stages(cluster), Profile.fallback().stages(cluster))
    journal = Journal.open(tmp_path / "journal.sqlite", durable=False)
    layout = Layout.made(cluster, (Place(node="box7", slot=0),))
    journal.set_meta(layout=layout.encoded(), profile=profile.resolved(), policy="default", seed=0)
    app = App(
        name="ana", user="ana", weight=1.0, tuner="none", trials=1, least=1, most=1, submitted_at=BEGAN,
        arrived_at=0.0, request_id="1", node="box7",
    )  # fmt: skip
    arrives = AppArrived(app=AppId("ana"), user=UserId("ana"), divides=False)
    for now, events in (
        (0.0, [arrives, JobAdded(job=JobId("ana/1"), app=AppId("ana"), least=1, most=1)]),
        (30.0, [AppCancelled(app=AppId("ana"))]),
    ):
        decision = arbiter.step(Seconds(now), events)
        journal.append(Seconds(now), events, decision, at=BEGAN + now)
    app.ended_jobs["ana/1"] = "cancelled"
    app.end("cancelled", "", 30.0)
    journal.append(Seconds(31.0), [], arbiter.step(Seconds(31.0), []), notes=[app.note()], at=BEGAN + 31.0)
    journal.close()
    folder = tmp_path / "apps" / "ana"
    (folder / "1").mkdir(parents=True)
    (folder / "activity").mkdir()
    rows = [",".join(TRIALS_COLUMNS), "ana/1,{},waiting,,0,,,0,0,"]  # older than its events
    (folder / "trials.csv").write_text("\n".join(rows))
    events = ActivityLog(folder / "activity" / "a1-g1.jsonl", "ana")
    events.note("start", Job(number=1, parameters={}, seed=1), BEGAN + 1.0, slots=(0,))
    events.note("saved", Job(number=1, parameters={}, seed=1), BEGAN + 20.0, slots=(0,), step=50)
    return tmp_path


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}"


def test_the_events_of_a_cancelled_job_end_with_its_cancellation(cancelled: Path, run: Callable[..., str]) -> None:
    *_, saved, last = run("logs", "ana/1", "--events", "--run", str(cancelled)).splitlines()
    assert saved.endswith("saved at step 50 on 1")
    assert last == f"{_clock(CANCELLED_AT)}.000  cancelled at step 50 or later"


def test_an_explanation_of_a_cancelled_job_says_so_and_when(cancelled: Path, run: Callable[..., str]) -> None:
    for name in ("ana/1", "ana"):
        shown = run("explain", name, "--run", str(cancelled))
        assert re.match(rf"{name}   CANCELLED", shown)
        assert "Outcome    cancelled at iteration 50 or later\nStarted    once\n" in shown
        assert re.search(rf"^Cancelled  \d{{4}}-\d\d-\d\d {_clock(CANCELLED_AT)}$", shown, re.MULTILINE)
        first = json.loads(run("explain", name, "--run", str(cancelled), "--json").splitlines()[0])
        assert (first["state"], first["outcome"]["cancelled_at_unix_seconds"]) == ("cancelled", CANCELLED_AT)


def test_a_run_without_a_journal_shows_the_events_that_its_app_masters_wrote(
    cancelled: Path, run: Callable[..., str]
) -> None:
    (cancelled / "journal.sqlite").unlink()
    assert "cancelled" not in run("logs", "ana/1", "--events", "--run", str(cancelled))


@pytest.mark.slow
def test_a_job_that_is_cancelled_while_it_runs_says_so_in_all_commands(tmp_path: Path, run: Callable[..., str]) -> None:
    shutil.copy(Path(__file__).with_name("live_script.py"), tmp_path / "live_script.py")
    command = f"{sys.executable} live_script.py --steps 1000000"
    job = f"[job]\ncommand = '{command}'\nslots = {{ min = 1, max = 2 }}\nmax_iterations = 1000000\nelastic = 'live'\n"
    (tmp_path / "long.toml").write_text(f"[app]\nname = 'long'\n{job}")
    with supervisor(tmp_path, policy="max_min") as made, client(made) as arbiter:
        arbiter.submit(tmp_path / "long.toml")
        eventually(lambda: [line for line in activity(made, "long") if line["event"] == "running"], "it runs")
        before = time.time()
        arbiter.cancel("long")
        for place in (("--state-dir", str(made.state_dir)), ("--run", str(made.state_dir))):
            last = run("logs", "long/1", "--events", *place).splitlines()[-1]
            assert re.search(r"  cancelled at step [\d,]+ or later$", last)
            assert last[:8] >= _clock(before - 1.0), last
            shown = run("explain", "long/1", *place)
            assert shown.startswith("long/1   CANCELLED")
            assert "\nCancelled  " in shown
            assert "\nStarted    once" in shown
