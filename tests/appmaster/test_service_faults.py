"""A full disk under a running arbiter, a journal that knows less than the machines, a machine lost before its first
lease."""

import asyncio
import importlib.util
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from eunomia.contract.events import JobAdded, JobPaused
from eunomia.units import AppId, JobId
from eunomia_appmaster.master.clock import SteadyClock, forget_future
from eunomia_appmaster.master.jobs import Gang, Job
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.service import driver
from eunomia_appmaster.service.certificates import make
from eunomia_appmaster.service.server import mend, publish

spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).with_name("service_lab.py"))
assert spec is not None
assert spec.loader is not None
service_lab: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(service_lab)
eventually, lab = service_lab.eventually, service_lab.lab


def limit_pages(made: Any, pages: int) -> None:
    """Let the journal's file have so many pages at most."""
    journal = made.arbiter.service.journal
    made.arbiter.call(lambda: journal._database.execute(f"PRAGMA max_page_count={pages}").fetchone())


def test_on_a_full_disk_submissions_are_refused_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "WRITE_AGAIN_SECONDS", 0.05)
    with lab(tmp_path) as made:
        made.ready()
        made.submit("first")
        journal = made.arbiter.service.journal
        limit_pages(made, 1)  # SQLite takes what the file has
        waiting: list[pb.SubmitResponse] = []
        threads = []
        for number in range(40):  # the free room in the last page is soon used up
            if made.arbiter.service.away is not None:
                break
            thread = threading.Thread(target=lambda name=f"more{number}": waiting.append(made.submit(name)))
            thread.start()
            threads.append(thread)
            eventually(lambda on=thread: not on.is_alive() or made.arbiter.service.away is not None, "taken or refused")
            assert number < 39
        steps = journal.last_step
        with pytest.raises(grpc.RpcError) as refused:
            made.submit("late")
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        rule = "the journal's disk must take what is written, but got database or disk is full"
        assert rule in str(refused.value.details())
        health = made.client().Health(pb.HealthRequest(), metadata=made.operator, timeout=service_lab.PATIENCE_SECONDS)
        assert not health.ready
        assert rule in health.faults[-1]
        assert journal.last_step == steps
        assert {app for app, _ in made.launcher.started} <= {app.name for app in made.arbiter.service.apps}
        made.arbiter.run(raise_limit(made))
        for thread in threads:
            thread.join(service_lab.PATIENCE_SECONDS)
        assert len(waiting) == len(threads)
        made.submit("late")
        eventually(lambda: ("late", 1) in made.launcher.started, "the master of an app that came when there was room")


def test_a_submission_interrupted_by_a_full_disk_can_be_repeated(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        made.ready()
        (tmp_path / "state" / "apps" / ".ana.new").mkdir(parents=True)  # what it had written
        assert made.submit("ana").app == "ana"


def test_a_damaged_note_affects_only_its_own_app(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        made.ready()
        for name in ("ana", "bob"):
            master = made.master(name, "2")
            master.register()
            job = pb.JobAdded(job=f"{name}/1", least=2, most=2, iterations=100.0)
            master.beat_until(lambda on=master: on.leases, jobs_added=[job])
        made.quiet()
        made.arbiter.close(checkpoint=False)
        made.channel.close()
        with closing(sqlite3.connect(tmp_path / "state" / "journal.sqlite", isolation_level=None)) as database:
            database.execute("UPDATE notes SET value = replace(value, '\"ana\"', '\"anb\"') WHERE key = 'ana'")
        made.arbiter = service_lab.Arbiter(tmp_path / "state")
        made.channel = grpc.insecure_channel(made.arbiter.address)
        made.ready()
        assert made.app("ana").state == "failed"
        assert "its note in the journal was damaged or missing" in made.app("ana").why
        assert made.app("bob").state == "running"
        eventually(lambda: len(made.slots("free")) == 2, "the slots of the app that was lost")


async def raise_limit(made: Any) -> None:
    """Not under the lock, which the step that waits for room holds."""
    made.arbiter.service.journal._database.execute("PRAGMA max_page_count=1000000").fetchone()


def test_an_arbiter_with_a_journal_older_than_its_machines_fences_them_first(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        seen = [lpb.SlotState(slot=slot, highest_epoch=40) for slot in range(4)]  # from an arbiter that knew more
        made.launcher.register(slot_states=seen)
        eventually(lambda: made.arbiter.service.ready.is_set(), "ready")
        made.ready()
        master = made.master("ana", "2")
        master.register()
        job = pb.JobAdded(job="ana/1", least=2, most=2, iterations=100.0)
        master.beat_until(lambda: master.leases, jobs_added=[job])
        assert set(made.launcher.fenced.values()) == {40}
        assert min(lease.epoch for lease in master.leases.values()) > 40


def test_an_arbiter_that_gets_a_signal_to_end_applies_its_last_events(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        made.ready()
        master = made.master("ana", "2")
        master.register()
        master.beat_until(lambda: master.leases, jobs_added=[pb.JobAdded(job="ana/1", least=2, most=2)])
        made.arbiter.run(end_within(made.arbiter, "ana"))
        made.restart()
        made.ready()
        assert made.app("ana").state == "cancelled"
        eventually(lambda: len(made.slots("free")) == 4, "the slots of an app that was cancelled at the very end")


def test_a_report_about_a_job_of_the_last_step_is_applied_before_the_arbiter_ends(tmp_path: Path) -> None:
    job = JobId("ana/1")

    async def end(arbiter: Any) -> None:
        async with arbiter.service.driver.lock:
            arbiter.service.driver.put([JobAdded(job=job, app=AppId("ana"), least=1, most=1), JobPaused(job=job)])
            arbiter._work.cancel()

    with lab(tmp_path) as made:
        made.ready()
        master = made.master("ana", "2")
        master.register()
        made.arbiter.run(end(made.arbiter))
        made.restart()
        made.ready()
        assert [(job.job, job.state) for job in made.seen().jobs] == [("ana/1", "paused")]


def test_a_caller_that_waits_for_a_step_triggers_the_next_step_at_once(tmp_path: Path) -> None:
    """Joins, join tokens and drains do: they took up to a second."""

    async def fold(made: Any) -> bool:
        stepping = made.arbiter.service.driver
        work = asyncio.create_task(stepping.fold([]))
        stepping._stir.clear()
        await asyncio.sleep(0)
        woken: bool = stepping._stir.is_set()
        await work
        return woken

    with lab(tmp_path) as made:
        made.ready()
        assert made.arbiter.run(fold(made))


async def end_within(arbiter: Any, app: str) -> None:
    """Cancel an app while the driver cannot step, and tell the service to end."""
    service = arbiter.service
    async with service.driver.lock:
        service.end(service.apps.get(app), "cancelled")
        arbiter._work.cancel()


def test_a_machine_that_was_lost_before_its_first_lease_can_be_leased_afterwards(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        made.ready()
        made.lose()
        made.ready()
        eventually(lambda: len(made.slots("free")) == 4, "back")
        master = made.master("ana", "2")
        master.register()
        job = pb.JobAdded(job="ana/1", least=2, most=2, iterations=100.0)
        master.beat_until(lambda: master.leases, jobs_added=[job])
        for lease in master.leases.values():
            for container in lease.containers:
                assert lease.epoch > made.launcher.closed.get(container.slot, 0)


def test_times_of_an_app_master_do_not_jump_with_the_system_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, real = SteadyClock(), time.time
    before = clock.now()
    for jump in (3600.0, -3600.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        assert 0.0 <= clock.now() - before < 60.0


def test_times_recorded_under_a_later_clock_are_corrected() -> None:
    gang = Gang(incarnation=1, gpus=(0,), containers=("a.1.1.0",), stop_at=None, began_at=5000.0, from_step=0)
    job = Job(number=1, parameters={}, seed=1, retry_at=5000.0, gang=gang)
    forget_future([job], 1000.0)
    assert (job.retry_at, gang.began_at) == (1060.0, 1000.0)


def test_an_observer_that_fails_is_named_in_the_health_answer_once(tmp_path: Path) -> None:
    def fails(_: object) -> None:
        raise ValueError("no such folder")

    with lab(tmp_path) as made:
        made.ready()
        made.arbiter.service.driver._observers = [("plots", fails)]
        for name in ("ana", "bob"):
            made.submit(name)
            master = made.master(name, "2")
            master.register()
            job = pb.JobAdded(job=f"{name}/1", least=2, most=2, iterations=100.0)
            master.beat_until(lambda on=master: on.leases, jobs_added=[job])
        health = made.client().Health(pb.HealthRequest(), metadata=made.operator, timeout=service_lab.PATIENCE_SECONDS)
        (fault,) = [fault for fault in health.faults if "plots (observer)" in fault]
        assert fault.endswith("ValueError('no such folder')")


def test_damaged_files_for_clients_are_rewritten(tmp_path: Path) -> None:
    with lab(tmp_path, certificates=make(tmp_path / "tls")) as made:
        shutil.rmtree(tmp_path / "tls")  # the CA that is served is kept
        service, folder = made.arbiter.service, tmp_path / "run"
        publish(service, folder)
        good = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert set(good) == {"address", "token", "launcher.token", "ca.pem"}
        for name, content in good.items():
            for damaged in (content[:5], b"", b"\xff", content[:-1] + b"x", None):
                (folder / name).unlink()
                if damaged is not None:
                    (folder / name).write_bytes(damaged)
                with structlog.testing.capture_logs() as logs:
                    mend(service, folder)
                assert [(line["event"], line["file"]) for line in logs] == [
                    ("run_file.written_again", str(folder / name))
                ]
                assert (folder / name).read_bytes() == content
                assert (folder / name).stat().st_mode & 0o777 == 0o600
        with structlog.testing.capture_logs() as logs:
            mend(service, folder)
        assert logs == []
