"""Nodes whose clocks differ: times that they report are put on the arbiter's clock, or are not taken."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import client, eventually, supervisor
from tests.appmaster.tiny_worker import scalar

from eunomia.contract.events import Adapted, RateMeasured
from eunomia.journal.journal import read_journal
from eunomia.units import JobId, Locality
from eunomia_appmaster.master import log_clocks
from eunomia_appmaster.master.announcements import Announcements
from eunomia_appmaster.master.jobs import Gang, Job
from eunomia_appmaster.master.log_clocks import LogClocks
from eunomia_appmaster.master.logs import JobLogs
from eunomia_appmaster.master.notices import Notices
from eunomia_appmaster.node.system import MachineSystem
from eunomia_appmaster.profiler.rates import STEP_SECONDS_TAG, RateBasis
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.runtimes.local import status_of
from eunomia_appmaster.runtimes.nodes import NodeAccess, NodeRuntimes
from eunomia_appmaster.service.clock_offsets import ClockOffset

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
_floors = serving_lab.floors
HOUR = 3600.0


class Fixed(MachineSystem):
    """A machine on which it is always the same time of day."""

    def unix_time(self) -> float:
        return 10_000.0


# --- the arbiter hands offsets out ----------------------------------------------------------------------------------


def test_app_masters_are_told_a_clock_offset_once_it_exceeds_the_network_delay() -> None:
    offset = ClockOffset()
    given = []
    for sent in (999.8, 999.9, 1002.0, 1002.3, 1000.0):
        offset.hear(sent, 1000.0)
        given.append(offset.given)
    assert given == [0.0, 0.0, 2.0, 2.0, 2.0]
    for _ in range(8):
        offset.hear(1000.0, 1000.0)  # its clock was set
    assert offset.given == 0.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path, slots=2) as made:
        yield made.ready()


def test_app_masters_are_told_node_clock_offsets_and_retries_follow_the_arbiter_clock(lab: Any) -> None:
    master = lab.master("ana", "1")
    assert [token.clock_ahead_seconds for token in master.register().node_tokens] == [0.0]
    node = lab.arbiter.service.nodes.get("box7")
    for sent in (-0.1, HOUR):
        lab.arbiter.call(lambda sent=sent: node.clock_offset.hear(1000.0 + sent, 1000.0))
    tokens = eventually(lambda: list(master.beat().node_tokens), "it hears of it")
    assert [token.clock_ahead_seconds for token in tokens] == [HOUR]
    again_at = lab.arbiter.service.system.unix_time() + HOUR + 30.0
    lab.launcher.master("ana", 1, lpb.APP_MASTER_SUSPENDED, again_at=again_at)
    eventually(lambda: lab.app("ana").state == "suspended", "it is suspended")
    assert 20.0 < lab.app("ana").tried_again_in_seconds <= 30.0


# --- an app master puts times on the arbiter's clock ------------------------------------------------------------------


def runtimes(**ahead: float) -> NodeRuntimes:
    made = NodeRuntimes("ana", cast("Any", None), "head", system=Fixed())
    made.hear(NodeAccess(node=node, address="", token="", clock_ahead=by) for node, by in ahead.items())
    return made


def test_an_announcement_is_dated_by_the_clock_of_the_arbiter() -> None:
    made = runtimes(head=-5.0, annex=-HOUR)
    assert made.unix_time() == 10_005.0
    announced = lpb.Announcement(number=1, at=6400.0, regime_json='{"batch_size": 64}')
    container = lpb.ContainerStatus(container_id="c", app="ana", job=1, state=lpb.RUNNING, announcements=[announced])
    status = status_of(container, "annex")
    job = Job(number=1, parameters={}, seed=0)
    heard = Announcements().hear(job, JobId("ana/1"), status, ahead=made.clock_ahead("annex"))
    ((_, report),) = heard
    assert (report.at, job.adapted_at) == (10_000.0, 10_000.0)


def write(folder: Path, incarnation: int, times: list[float], *, timed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log a point at each of these times of day, and maybe how long the step took."""
    folder.mkdir(exist_ok=True)
    with (folder / f"events.out.tfevents.1.box.9.0.r{incarnation}").open("wb") as file:
        for step, at in enumerate(times):
            monkeypatch.setattr("time.time", lambda at=at: at)
            file.write(scalar("loss", step, 1.0))
            if timed:
                file.write(scalar(STEP_SECONDS_TAG, step, 0.5))
    monkeypatch.undo()


def gang(incarnation: int, node: str) -> Gang:
    return Gang(
        attempt=1,
        incarnation=incarnation,
        gpus=(0,),
        containers=(f"ana.1.{incarnation}.0",),
        nodes=(node,),
        stop_at=None,
        began_at=0.0,
        from_step=0,
        running=True,
    )


def clocks(**ahead: float) -> tuple[LogClocks, Notices]:
    notices = Notices()
    around = SimpleNamespace(app="ana", runtimes=runtimes(**ahead), notices=notices)
    return LogClocks(cast("Any", around)), notices


def test_with_a_node_seconds_behind_rates_use_samples_after_the_announcement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = [9990.0 + each for each in range(10)], [10_000.0 + 2 * each for each in range(10)]
    write(tmp_path, 1, [each - 50.0 for each in (*before, *after)], timed=False, monkeypatch=monkeypatch)
    logs = JobLogs("ana/1", tmp_path, None)
    logs.poll()
    job = Job(number=1, parameters={}, seed=0, incarnation=1, gang=gang(1, "annex"), adapted_at=10_000.0)
    look, notices = clocks(head=7.0, annex=-50.0)
    look.note(job, logs)
    assert job.clocks == {1: -50.0}
    assert Job.from_json(job.to_json()).clocks == {1: -50.0}
    (rate,) = logs.rates({1: (1, 0)}, since=look.since(job, 9000.0), ahead=job.clocks)
    assert (rate.seconds_per_iteration, rate.basis) == (2.0, RateBasis.WALL_TIME)
    assert look.since(job, 10_017.0) == 10_010.0, "this process' clock is 7 s ahead"
    assert notices.kept == ()
    # The gang has ended, and the clock is set: what it logged stays where it was.
    job.gang = None
    look, _ = clocks(head=0.0, annex=0.0)
    look.note(job, logs)
    assert job.clocks == {1: -50.0}


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_rates_on_a_node_an_hour_off_come_only_from_logged_step_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    times = [10_000.0 + ahead + each for each in range(20)]
    write(tmp_path, 1, times, timed=False, monkeypatch=monkeypatch)
    logs = JobLogs("ana/1", tmp_path, None)
    logs.poll()
    job = Job(number=1, parameters={}, seed=0, incarnation=1, gang=gang(1, "annex"), adapted_at=10_000.0)
    look, notices = clocks(head=0.0, annex=ahead)
    for _ in range(2):
        look.note(job, logs)
    assert logs.rates({1: (1, 0)}, since=look.since(job, 9000.0), ahead=job.clocks) == []
    far = "3600 s ahead of" if ahead > 0.0 else "3600 s behind"
    assert notices.kept == (
        f"ana/1: its speed is not measured: the clock of annex is {far} the arbiter's, and its logs have no step "
        f"times ({STEP_SECONDS_TAG})",
    )
    write(tmp_path / "timed", 1, times, timed=True, monkeypatch=monkeypatch)
    timed = JobLogs("ana/1", tmp_path / "timed", None)
    timed.poll()
    look, notices = clocks(head=0.0, annex=ahead)
    look.note(job, timed)
    (rate,) = timed.rates({1: (1, 0)}, since=look.since(job, 9000.0), ahead=job.clocks)
    assert (rate.seconds_per_iteration, rate.basis, notices.kept) == (0.5, RateBasis.STEP_SECONDS, ())
    assert log_clocks.is_too_far_off(ahead) and Locality(0) is rate.locality


# --- a launcher whose machine is an hour behind -----------------------------------------------------------------------

WORKER = """
import os, sys, time
real = time.time
time.time = lambda: real() - 3600.0
sys.path.insert(0, {tests!r})
from tiny_worker import Orders, scalar
orders, timed = Orders(), "--timed" in sys.argv
folder, incarnation = os.environ["EUNOMIA_RUN_DIR"], os.environ["EUNOMIA_INCARNATION"]
with open(f"{{folder}}/logs/events.out.tfevents.1.box.{{os.getpid()}}.0.r{{incarnation}}", "ab") as log:
    for step in range(1, 100_000):
        if os.path.exists("end") or any(one["order"] == "suspend" for one in orders.poll()):
            break
        time.sleep(0.05)
        log.write(scalar("loss", step, 1.0))
        if timed:
            log.write(scalar("eunomia/step_seconds", step, 0.05))
        log.flush()
        orders.say(progress={{"step": step}})
        if step == 20:
            orders.say(announce={{"batch_size": 64}})
"""


def events(folder: Path, app: str) -> list[Any]:
    with read_journal(folder / "journal.sqlite") as journal:
        found = [(step.now, event) for step in journal.steps() for event in step.events]
    return [(at, one) for at, one in found if getattr(one, "job", "") == f"{app}/1"]


@pytest.mark.slow
def test_an_app_runs_on_two_nodes_whose_clocks_differ_by_an_hour(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WORKER.format(tests=str(Path(__file__).parent)))
    lab = Path(__file__).with_name("shifted_launcher.py")

    def app_file(name: str, more: str = "") -> Path:
        file = tmp_path / f"{name}.toml"
        file.write_text(f'[app]\nname = "{name}"\n[job]\ncommand = "{sys.executable} train.py{more}"\n')
        return file

    with supervisor(tmp_path, slots=1) as made, client(made) as arbiter:
        arbiter.submit(app_file("first"))  # it has the head's slot, where app masters run under the arbiter's clock
        eventually(lambda: arbiter.app("first").running == 1, "the head is full")
        options = ["--state", str(made.state_dir), "--node-dir", str(tmp_path / "annex"), "--node", "annex"]
        options += ["--arbiter", made.address, "--token-file", str(made.run_dir / "launcher.token")]
        options += ["--slots", "2", "--cpu-only"]
        with (tmp_path / "annex.log").open("ab") as log:
            command = [sys.executable, str(lab), str(-HOUR), *options]
            launcher = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        try:

            def node() -> Any:
                return next((node for node in arbiter.nodes() if node.node == "annex"), None)

            eventually(lambda: (seen := node()) and "s behind the arbiter's" in seen.why, "its clock is seen")
            assert -HOUR - 60.0 < node().clock_offset_seconds < -HOUR + 1.0
            arbiter.submit(app_file("plain"))
            arbiter.submit(app_file("timed", " --timed"))

            def adapted(app: str) -> Any:
                return [(at, one) for at, one in events(made.state_dir, app) if isinstance(one, Adapted)]

            for name in ("plain", "timed"):
                ((at, one),) = eventually(lambda name=name: adapted(name), "its batch size is announced")
                assert at - 60.0 < float(one.at) <= at, "not an hour ago"
            said = eventually(lambda: arbiter.app("plain").standing.notices, "it is said")
            assert "its speed is not measured: the clock of annex is 3600 s behind the arbiter's" in said[0]

            def rates(app: str) -> list[Any]:
                return [one for _, one in events(made.state_dir, app) if isinstance(one, RateMeasured)]

            eventually(lambda: rates("timed"), "step times are measured")
            assert rates("plain") == []
            assert not arbiter.app("timed").standing.notices
            (tmp_path / "end").touch()
            eventually(lambda: arbiter.app("plain").state == "finished", "it has ended")
            eventually(lambda: arbiter.app("timed").state == "finished", "it has ended")
        finally:
            launcher.terminate()
            launcher.wait(30)
