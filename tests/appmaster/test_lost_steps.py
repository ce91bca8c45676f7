"""An arbiter whose journal lost steps asks: it answers, ends no work, and decides nothing until that is accepted."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.appmaster.test_metrics import asked

from appmaster.service_lab import Lab, eventually, lab
from eunomia.journal.journal import read_journal
from eunomia_appmaster.node.mark_file import MARK
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.service.gauges import StateGauges
from eunomia_appmaster.service.metrics import Meters
from eunomia_appmaster.service.metrics_server import MetricsServer

JOB = pb.JobAdded(job="ana/1", least=2, most=2, iterations=100.0)


def backup(path: Path, target: Path) -> None:
    with closing(sqlite3.connect(path)) as journal, closing(sqlite3.connect(target)) as copy:
        journal.backup(copy)


def restored(made: Lab, tmp_path: Path, **settings: Any) -> None:
    """End the arbiter, and start another with the backup in the place of the journal."""
    made.quiet()
    state = made.arbiter.settings.state_dir
    end = made.arbiter.close

    def close(**more: Any) -> None:
        end(**more)
        shutil.copyfile(tmp_path / "backup", state / "journal.sqlite")

    made.arbiter.close = close  # type: ignore[method-assign]
    made.restart(**settings)


def running(made: Lab, tmp_path: Path) -> Any:
    """App ana holds two slots; a backup is made, and app late comes."""
    made.ready()
    master = made.master("ana", "2")
    master.register()
    master.beat_until(lambda: master.leases, jobs_added=[JOB])
    made.launcher.busy |= {0, 1}
    made.seen()
    backup(made.arbiter.settings.journal, tmp_path / "backup")
    for _ in range(3):
        made.submit("late", "1")
    return master


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), error.value.details()


def test_an_arbiter_whose_journal_lost_steps_asks_the_operator_and_ends_no_work(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        master = running(made, tmp_path)
        made.launcher.containers = [
            lpb.ContainerStatus(container_id="late/1", app="late", job=1, slot=3, epoch=9, state=lpb.RUNNING)
        ]
        made.launcher.revoked, made.launcher.stopped = [], set()
        restored(made, tmp_path)
        made.ready()
        service = made.arbiter.service
        seen = made.seen()
        assert "steps are gone: apps late, late-2, late-3 (the journal ends with step" in seen.question
        assert "journal.mark has step" in seen.question
        assert "`eunomia serve --accept-loss`" in seen.question
        assert [(app.app, app.slots) for app in seen.apps] == [("ana", 2)]
        health = made.client().Health(pb.HealthRequest(), metadata=made.operator)
        assert (health.ready, health.question) == (False, seen.question)
        rule = "the arbiter must have all its steps to decide, but got"
        stub = made.client()
        for call in (
            lambda: made.submit("bob"),
            lambda: stub.Cancel(pb.CancelRequest(app="ana"), metadata=made.operator),
            lambda: stub.Resume(pb.ResumeRequest(), metadata=made.operator),
            lambda: stub.ResumeApp(pb.ResumeAppRequest(app="ana"), metadata=made.operator),
            lambda: stub.MoreTrials(pb.MoreTrialsRequest(app="ana", trials=1), metadata=made.operator),
            lambda: stub.SetProfile(pb.SetProfileRequest(drop="x"), metadata=made.operator),
        ):
            code, why = refused(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert why.startswith(rule)
        assert refused(master.register)[0] is grpc.StatusCode.UNAVAILABLE  # an app master waits, and its workers go on
        before = service.journal.last_step
        for _ in range(3):
            made.launcher.beat()
        assert (made.launcher.revoked, made.launcher.stopped, service.journal.last_step) == ([], set(), before)
        with read_journal(made.arbiter.settings.journal) as journal:
            assert journal.last_step == before
        accepted = stub.AcceptLoss(pb.AcceptLossRequest(), metadata=made.operator).accepted
        assert seen.question.startswith(accepted)
        eventually(lambda: made.launcher.revoked, "the container of an app that is gone is revoked")
        assert {order.slot for order in made.launcher.revoked} == {3}
        master.register()
        assert {lease.job for lease in master.leases.values()} == {"ana/1"}
        assert made.submit("late", "1").app == "late-4"  # the folders of the lost ones stay
        assert (
            "a loss must be asked about"
            in refused(lambda: stub.AcceptLoss(pb.AcceptLossRequest(), metadata=made.operator))[1]
        )
        assert f"accepted: {accepted}" in service.driver.faults
        made.restart()
        made.ready()
        assert made.seen().question == ""
        assert [note["what"] for note in made.arbiter.service.journal.notes("loss").values()] == [accepted]  # type: ignore[call-overload,index]


def test_an_arbiter_that_asks_about_lost_steps_is_not_ready_until_the_operator_answers(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        running(made, tmp_path)
        restored(made, tmp_path)
        made.ready()
        service, meters = made.arbiter.service, Meters()
        meters.registry.register(StateGauges(service))

        async def serve() -> MetricsServer:
            return MetricsServer(service, meters, "127.0.0.1:0")

        server = made.arbiter.run(serve())

        def shown() -> tuple[bool, bool]:
            ready = "eunomia_ready 1.0" in asked(server.address, "/metrics")[1]
            return ready, json.loads(asked(server.address, "/health")[1])["ready"]

        try:
            assert shown() == (False, False)
            assert 'eunomia_slots{state="free"} 2.0' in asked(server.address, "/metrics")[1]
            made.client().AcceptLoss(pb.AcceptLossRequest(), metadata=made.operator)
            assert shown() == (True, True)
        finally:
            server.close()


def test_the_question_to_the_operator_survives_a_restart_and_an_option_answers_it(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        running(made, tmp_path)
        restored(made, tmp_path)
        made.ready()
        assert "apps late" in made.seen().question
        made.restart(checkpoint=True)
        made.ready()
        assert "apps late" in made.seen().question
        made.restart(accept_loss=True)
        made.ready()
        assert made.seen().question == ""
        assert len(made.arbiter.service.journal.notes("loss")) == 1


def test_a_launcher_reports_the_mark_of_the_journal_if_the_file_is_missing(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        running(made, tmp_path)
        mark = made.launcher.beat().mark
        assert mark == made.arbiter.service.marks.present
        restored(made, tmp_path)
        made.arbiter.settings.mark.unlink()
        made.restart()
        made.launcher.register(mark=mark)
        eventually(lambda: made.arbiter.service.ready.is_set(), "ready")
        assert "the launcher of box7 has step" in made.seen().question


def test_an_app_master_with_a_newer_mark_than_the_journal_is_reported_as_a_fault(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        master = running(made, tmp_path)
        mark = master.register().mark
        restored(made, tmp_path)
        (made.arbiter.settings.state_dir / MARK).unlink()
        made.restart()
        made.ready()
        request = pb.RegisterApplicationMasterRequest(app="ana", attempt=1, mark=mark)
        for _ in range(2):
            master.stub().RegisterApplicationMaster(request, metadata=master.token)
        faults = [fault for fault in made.arbiter.service.driver.faults if "lacks steps" in fault]
        assert faults == ["the journal lacks steps that the app master of ana has heard of"]
