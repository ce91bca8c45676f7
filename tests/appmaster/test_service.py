"""The arbiter's service over real gRPC: tokens, submission, leases, releases, response ids, restarts."""

import importlib.util
import json
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from eunomia.arbiter import Arbiter
from eunomia.journal.journal import Journal
from eunomia.journal.recovery import recover
from eunomia.platform.profiles import Profile
from eunomia_appmaster.commands import nodes as nodes_command
from eunomia_appmaster.commands import submit as submit_command
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol.tokens import container_token
from eunomia_appmaster.service import sessions

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, Master, NODE = lab_module.eventually, lab_module.Master, lab_module.NODE


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path) as made:
        yield made.ready()


def code_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def job(name: str = "ana/1", **more: Any) -> pb.JobAdded:
    return pb.JobAdded(**{"job": name, "least": 2, "most": 2, "iterations": 100.0, **more})


def running(lab: Any, name: str = "ana", **more: Any) -> Any:
    """An app whose first job runs."""
    master = lab.master(name)
    master.register()
    master.beat_until(lambda: master.leases, jobs_added=[job(f"{name}/1", **more)])
    master.beat()  # acknowledges what was allocated
    return master


# --- who may call what ----------------------------------------------------------------------------------------------


def test_a_call_without_a_token_or_with_a_wrong_one_is_refused(lab: Any) -> None:
    tokens = lab.arbiter.service.tokens
    for metadata in ((), (("authorization", "Bearer operator::00"),), (("authorization", tokens.operator),)):
        code, _ = code_of(lambda sent=metadata: lab.client().Health(pb.HealthRequest(), metadata=sent))
        assert code is grpc.StatusCode.UNAUTHENTICATED


def test_a_token_is_valid_only_for_its_own_role(lab: Any) -> None:
    app, launcher = Master(lab, "ana").token, lab.launcher.token
    refused = grpc.StatusCode.PERMISSION_DENIED
    assert code_of(lambda: lab.client().List(pb.ListRequest(), metadata=app))[0] is refused
    assert code_of(lambda: lab.client().List(pb.ListRequest(), metadata=launcher))[0] is refused
    beat = lpb.NodeHeartbeatRequest(node=NODE)
    assert code_of(lambda: lab.launcher.stub().NodeHeartbeat(beat, metadata=app))[0] is refused


def test_an_app_can_only_act_on_its_own_jobs_and_leases(lab: Any) -> None:
    ana, bob = lab.master("ana"), lab.master("bob")
    ana.register()
    stolen = pb.AllocateRequest(app="bob", attempt=1)
    assert code_of(lambda: ana.stub().Allocate(stolen, metadata=ana.token))[0] is grpc.StatusCode.PERMISSION_DENIED
    bob.register()
    ana.beat(jobs_added=[job("ana/1")])
    answer = bob.beat(jobs_finished=["ana/1"])
    assert [job.job for job in lab.seen().jobs] == ["ana/1"]
    assert "app's own" in answer.refused[0]


def test_jobs_of_another_app_are_refused_with_rule_and_value(lab: Any) -> None:
    master = lab.master()
    master.register()
    first = master.beat(jobs_added=[job("bob/1"), job("ana/1")])
    refused = [*first.refused, *master.beat().refused]
    assert refused == ['a job must be the app\'s own, as app/number, but got "bob/1" (ana)']
    assert not lab.seen().jobs


# --- submission -----------------------------------------------------------------------------------------------------


def test_a_submitted_app_gets_a_folder_an_app_master_and_a_unique_name(lab: Any) -> None:
    first, second = lab.submit(), lab.submit()
    assert (first.app, first.renamed, second.app, second.renamed) == ("ana", False, "ana-2", True)
    assert (first.slots, second.other_apps, first.least, first.most, first.user) == (4, 1, 2, 2, "ana")
    folder = lab.folder / "state" / "apps" / "ana-2"
    assert 'name = "ana"' in (folder / "app.toml").read_text()
    assert json.loads((folder / "submission.json").read_text())["folder"] == str(lab.folder)
    order = eventually(lambda: lab.launcher.started.get(("ana-2", 1)))
    assert order.command == ["python", "-m", "eunomia_appmaster.master"]
    assert order.token == lab.arbiter.service.tokens.app("ana-2")
    assert lab.app("ana").state == "starting"


SEARCH = """
[app]
name = "search"
[job]
command = "python train.py {words}"
[space]
lr = {{ type = "categorical", choices = [0.1, 0.2] }}
wd = {{ type = "categorical", choices = [1, 2] }}
[tuner]
metric = "loss"
sampler = "grid"
"""


@pytest.mark.parametrize(
    ("words", "unnamed"),
    [
        ("", ["lr", "wd"]),
        ("--seed {seed}", ["lr", "wd"]),
        ("{args}", []),
        ("--lr {lr}", []),
        ("--lr {{lr}}", ["lr", "wd"]),
    ],
)
def test_a_search_whose_command_uses_no_parameter_causes_a_warning(lab: Any, words: str, unnamed: list[str]) -> None:
    answer = lab.submit(app_file=SEARCH.format(words=words))
    assert list(answer.unnamed_parameters) == unnamed
    shown = " ".join(submit_command.unnamed_parameters(answer))
    assert ("neither {args} nor parameters lr, wd" in shown) == bool(unnamed)
    assert submit_command.facts(answer, "127.0.0.1:1", ())["unnamed_parameters"] == unnamed


def test_a_submission_repeated_after_a_lost_answer_creates_one_app(lab: Any) -> None:
    assert [lab.submit(request_id="x").app, lab.submit(request_id="x").app] == ["ana", "ana"]
    assert len(lab.seen().apps) == 1


def errors_of(call: Any) -> list[str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    (packed,) = [value for key, value in caught.value.trailing_metadata() if key == "eunomia-errors-bin"]
    return [f"{error.rule}|{error.value}|{error.place}" for error in pb.Errors.FromString(packed).errors]


def test_an_app_that_can_never_run_is_refused_and_no_folder_remains(lab: Any) -> None:
    refusal = (
        "slots must fit the cluster, as it is or has been, or the app must wait for machines (--wait-for-machines)"
        "|a gang of 8 where at most 4 slots were at once|app.toml, [job].slots"
    )
    assert errors_of(lambda: lab.submit(slots="8")) == [refusal]
    several = errors_of(lambda: lab.submit(app_file='[app]\nname = "/"\n[job]\ncommand = "python nothing.py"\n'))
    assert len(several) == 2
    assert not lab.seen().apps
    assert not list((lab.folder / "state").glob("apps/*"))


def test_on_the_machine_of_the_arbiter_alone_a_gang_that_is_too_large_is_refused_in_plain_words(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.launcher.register(head=True)
        lab.beating = lab_module.Beating(lab.launcher)
        lab_module.eventually(lambda: lab.arbiter.service.ready.is_set(), "ready")
        plain = "slots must fit the cluster|a gang of 8 where 4 slots exist|app.toml, [job].slots"
        assert errors_of(lambda: lab.submit(slots="8")) == [plain]
        annex = lab_module.Launcher(lab, 2, "of annex", "annex")
        annex.register()
        (refusal,) = errors_of(lambda: lab.submit(slots="8"))
        assert "--wait-for-machines" in refusal and "at most 6 slots were at once" in refusal


# --- leases ---------------------------------------------------------------------------------------------------------


def test_a_job_gets_a_gang_of_slots_and_runs_once_its_lease_is_acknowledged(lab: Any) -> None:
    master = lab.master()
    welcome = master.register()
    assert [machine.gpus for machine in welcome.cluster.machines] == [4]
    master.beat_until(lambda: master.leases, jobs_added=[job()])
    (lease,) = master.leases.values()
    assert lease.job == "ana/1"
    assert not lease.HasField("ends_at")  # fifo's leases are unlimited
    slots = [container.slot for container in lease.containers]
    secret = lab.arbiter.service.tokens.container_secret(NODE)
    assert [container.container_token for container in lease.containers] == [
        container_token(secret, "ana", NODE, slot, lease.epoch) for slot in slots
    ]
    assert lab.seen().jobs[0].state == "starting"
    master.beat()
    assert lab.seen().jobs[0].state == "running"
    assert lab.slots("held") == slots


def test_slots_are_free_only_once_the_launcher_reports_them_empty(lab: Any) -> None:
    master = running(lab)
    lab.launcher.busy = {0, 1}
    master.beat_until(lambda: master.leaving, jobs_finished=["ana/1"])
    (lost,) = master.leaving
    assert list(lost.gpus) == [0, 1]
    assert 0.0 < lost.deadline_seconds <= 30.0
    eventually(lambda: len(lab.launcher.revoked) >= 2)
    revoked = {order.slot: order for order in lab.launcher.revoked}
    assert {slot: order.epoch for slot, order in revoked.items()} == {0: lost.epoch, 1: lost.epoch}
    assert lab.slots("leaving") == [0, 1]
    lab.launcher.busy = {1}
    eventually(lambda: lab.slots("leaving") == [1])
    lab.launcher.busy = set()
    eventually(lambda: lab.slots("free") == [0, 1, 2, 3])
    master.beat_until(lambda: master.ended)


def test_a_waiting_gang_starts_when_the_last_holder_is_gone(lab: Any) -> None:
    first, other = running(lab, "first"), lab.master("other", "4")
    other.register()
    other.beat(jobs_added=[job("other/1", least=4, most=4)])
    said = lab.client().Explain(pb.ExplainRequest(job="other/1"), metadata=lab.operator).explanations[0]
    assert said.state == "waiting"
    assert said.reason
    lab.launcher.busy = {0}
    first.beat(jobs_finished=["first/1"])
    for _ in range(3):
        other.beat()
    assert not other.leases
    lab.launcher.busy = set()
    other.beat_until(lambda: other.leases)
    epochs = {container.version for lease in other.leases.values() for container in lease.containers}
    assert min(epochs) > max(lab.launcher.closed.values())


def test_the_progress_and_the_best_metric_of_a_search_are_shown(lab: Any) -> None:
    master = running(lab)
    standing = pb.Standing(metric="val/accuracy", best=0.97, best_job="ana/1", last="resumed", trials=1)
    told = pb.JobProgress(job="ana/1", iterations_done=40, rate=0.0)
    master.beat(jobs_progress=[told], progress=0.4, standing=standing)
    eventually(lambda: lab.seen().jobs[0].iterations_done == 40.0)
    app = lab.app("ana")
    assert (app.done, app.best, app.standing.last, app.state) == (0.4, 0.97, "resumed", "running")
    slot = lab.seen().slots[0]
    assert (slot.app, slot.job, slot.iterations_done, slot.iterations) == ("ana", "ana/1", 40.0, 100.0)


def test_a_released_slot_is_free_again(lab: Any) -> None:
    master = running(lab)
    (lease,) = master.leases.values()
    master.beat(release=[pb.Release(lease=lease.id, epoch=lease.epoch - 1, gpus=[0, 1])])
    assert lab.slots("held") == [0, 1]  # it spoke of an older lease
    master.beat(release=[pb.Release(lease=lease.id, epoch=lease.epoch, gpus=[0, 1, 3, 99])], jobs_paused=["ana/1"])
    eventually(lambda: lab.slots("free") == [0, 1, 2, 3])


def test_reports_on_ended_or_known_jobs_are_ignored(lab: Any) -> None:
    master = running(lab)
    answer = master.beat(jobs_added=[job()], jobs_finished=["ana/1", "ana/9"])
    master.beat(jobs_finished=["ana/1"], jobs_progress=[pb.JobProgress(job="ana/1", iterations_done=1)])
    assert not answer.refused
    assert not master.beat().refused


def test_a_report_after_the_end_of_its_job_is_ignored_without_a_refusal(lab: Any) -> None:
    master = running(lab)
    late = pb.MeasuredRate(job="ana/1", gpus=2, gpu_type="cpu", rate=3.0)
    done = pb.JobProgress(job="ana/1", iterations_done=1)
    with structlog.testing.capture_logs() as logged:
        master.beat(jobs_finished=["ana/1"], rates=[late], jobs_progress=[done])
        entries = eventually(lambda: [entry for entry in logged if entry["event"] == "event.late"])
    assert {entry["log_level"] for entry in entries} == {"debug"}
    assert "a report came after its job had ended, and is dropped: " in entries[0]["what"]
    assert not [entry for entry in logged if entry["event"] == "event.refused"]
    assert not master.beat().refused


def test_reports_on_a_job_may_arrive_in_the_same_request_as_the_job(lab: Any) -> None:
    master = lab.master()
    master.register()
    master.beat(jobs_added=[job()], jobs_paused=["ana/1"])
    assert eventually(lambda: lab.seen().jobs[0].state == "paused")


# --- response ids ---------------------------------------------------------------------------------------------------


def test_a_repeated_response_id_gets_the_last_answer_unchanged(lab: Any) -> None:
    master = lab.master()
    master.register()
    before, answer = master.response_id, master.beat(jobs_added=[job()])
    while not answer.allocated_leases:
        before = master.response_id
        answer = master.beat()
    assert master.call(response_id=before) == answer
    assert lab.seen().jobs[0].state == "starting"  # the lost answer is not acknowledged
    later = master.beat()
    assert later.response_id == answer.response_id + 1
    assert lab.seen().jobs[0].state == "running"
    code, why = code_of(lambda: master.call(response_id=before - 1 if before else 99))
    assert (code, "response_id must be" in why) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_a_heartbeat_waits_for_changes_and_a_second_one_supersedes_it(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path, heartbeat=600.0) as lab:
        lab.ready()
        master = lab.master()
        master.register()
        answers: list[pb.AllocateResponse] = []
        first = threading.Thread(target=lambda: answers.append(master.call()))
        first.start()
        eventually(lambda: lab.arbiter.service.sessions["ana"].calls == 1)
        second = master.call(jobs_added=[job()])
        first.join(lab_module.PATIENCE_SECONDS)
        assert [(answer.response_id, answer.allocated_leases) for answer in answers] == [(0, [])]
        assert second.response_id == 1


def test_a_second_call_gets_the_answer_computed_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lab_module.lab(tmp_path, heartbeat=60.0) as lab:
        lab.ready()
        holder, master = lab.master("first"), lab.master("other", "4")
        holder.register()
        holder.beat_until(lambda: holder.leases, jobs_added=[job("first/1")])
        master.register()
        waiting = threading.Thread(target=lambda: master.call(jobs_added=[job("other/1", least=4, most=4)]))
        waiting.start()
        session = lab.arbiter.service.sessions["other"]
        eventually(lambda: lab.seen(app="other").jobs)
        monkeypatch.setattr(sessions, "LEAST_SECONDS", 2.0)
        session._next_turn = 0.0
        again = pb.AllocateRequest(app="other", attempt=1)
        calls = [master.stub().Allocate.future(again, metadata=master.token, timeout=90.0) for _ in range(2)]
        eventually(lambda: session.calls == 2)  # one of the two took over; the other waits for its turn
        holder.beat(jobs_finished=["first/1"])
        for call in calls:
            answer = call.result()
            if answer.response_id:  # else it was overtaken
                assert answer.allocated_leases
        waiting.join(lab_module.PATIENCE_SECONDS)


def test_an_unregistered_app_master_gets_resync_and_a_former_attempt_shutdown(lab: Any) -> None:
    master = lab.master()
    assert master.call().a_m_command == pb.AM_RESYNC
    master.register()
    later = Master(lab, "ana", attempt=2)
    later.register()
    assert master.call().a_m_command == pb.AM_SHUTDOWN
    assert code_of(master.register)[0] is grpc.StatusCode.FAILED_PRECONDITION
    later.beat()


# --- ends -----------------------------------------------------------------------------------------------------------


def test_a_finished_app_releases_everything_and_stays_listed(lab: Any) -> None:
    master = running(lab)
    assert master.finish(standing=pb.Standing(metric="m", best=0.5)).is_unregistered
    assert master.finish().is_unregistered  # its first answer may be lost
    eventually(lambda: lab.slots("free") == [0, 1, 2, 3])
    app = lab.app("ana")
    assert (app.state, app.done, app.best, app.ended) == ("finished", 1.0, 0.5, 1)
    assert app.jct_seconds > 0.0
    assert master.call().a_m_command == pb.AM_SHUTDOWN
    assert code_of(master.register)[0] is grpc.StatusCode.FAILED_PRECONDITION
    assert lab.submit().app == "ana-2"


def test_the_leases_of_a_cancelled_app_are_revoked_and_its_app_master_is_stopped(lab: Any) -> None:
    master = running(lab)
    cancel = pb.CancelRequest(app="ana")
    assert not lab.client().Cancel(cancel, metadata=lab.operator).was_over
    assert master.call().a_m_command == pb.AM_SHUTDOWN
    eventually(lambda: "ana" in lab.launcher.stopped)
    eventually(lambda: lab.slots("free") == [0, 1, 2, 3])
    again = lab.client().Cancel(cancel, metadata=lab.operator)
    assert (again.was_over, again.state) == (True, "cancelled")
    unknown = pb.CancelRequest(app="nobody")
    assert code_of(lambda: lab.client().Cancel(unknown, metadata=lab.operator))[0] is grpc.StatusCode.NOT_FOUND


def test_an_app_whose_app_master_backs_off_is_suspended_until_the_next_attempt_registers(lab: Any) -> None:
    master = running(lab)
    why = "ended by itself 5 times in 10 min, last with exit code 9"
    end = lpb.Exit(code=9)
    lab.launcher.master("ana", 5, lpb.APP_MASTER_SUSPENDED, exit=end, diagnostics=why, again_at=time.time() + 60.0)
    app = eventually(lambda: (seen := lab.app("ana")).state == "suspended" and seen)
    assert app.why == f"its app master {why}"
    assert 50.0 < app.tried_again_in_seconds <= 60.0
    eventually(lambda: lab.slots("free") == [0, 1, 2, 3])  # none of them has a worker
    assert [(one.job, one.state) for one in lab.seen(app="ana").jobs] == [("ana/1", "paused")]
    (note,) = [one for one in lab.arbiter.call(lambda: list(lab.arbiter.service.apps)) if one.name == "ana"]
    assert (note.state, note.over) == ("suspended", False)
    lab.launcher.master("ana", 6, lpb.APP_MASTER_RUNNING)
    master.attempt = 6
    time.sleep(0.2)
    assert lab.app("ana").state == "suspended"  # it runs, and has not registered
    master.register()
    eventually(lambda: lab.app("ana").state == "paused")
    assert lab.app("ana").why == ""
    master.beat(jobs_resumed=[pb.JobResumed(job="ana/1")])
    eventually(lambda: lab.app("ana").state == "running")


def test_an_app_master_that_ended_before_its_app_is_started_again(lab: Any) -> None:
    running(lab)
    for attempt, end in ((1, lpb.Exit(code=0)), (2, lpb.Exit(code=143)), (3, lpb.Exit())):
        lab.launcher.master("ana", attempt, lpb.APP_MASTER_COMPLETED, exit=end)
        eventually(lambda attempt=attempt: ("ana", attempt + 1) in lab.launcher.started)  # type: ignore[misc]
    assert lab.app("ana").state == "running"


def test_an_app_master_that_ended_with_its_launcher_is_started_again(lab: Any) -> None:
    running(lab)
    lab.quiet()
    lab.launcher.launcher_id = "second"
    lab.launcher.master("ana", 1, lpb.APP_MASTER_COMPLETED, exit=lpb.Exit(signal=15))
    lab.launcher.register()
    lab.beating = lab_module.Beating(lab.launcher)
    eventually(lambda: ("ana", 2) in lab.launcher.started)
    assert lab.app("ana").state == "running"


def ended(lab: Any, name: str, **more: Any) -> Any:
    """An app that has come and gone, with its master."""
    assert lab.submit(name, **more).app == name
    master = Master(lab, name)
    eventually(lambda: (name, 1) in lab.launcher.started)
    master.register()
    master.beat(jobs_added=[job(f"{name}/1")])
    master.finish(diagnostics="done")
    eventually(lambda: lab.slots("free") == [0, 1, 2, 3])
    return master


def kept(lab: Any) -> list[str]:
    """Apps in the service's memory."""
    return lab.arbiter.call(lambda: [app.name for app in lab.arbiter.service.apps])  # type: ignore[no-any-return]


def test_apps_that_ended_long_ago_are_kept_only_in_the_journal(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path, keep_apps=1) as lab:
        lab.ready()
        masters = {name: ended(lab, name, request_id=f"id of {name}") for name in ("ana", "bob", "cid")}
        live = running(lab, "dan")
        service = lab.arbiter.service
        for _ in range(3):
            lab.arbiter.call(service.forget)
        assert kept(lab) == ["ana", "bob", "cid", "dan"]  # their masters have not ended yet
        for name in masters:
            lab.launcher.master(name, 1, lpb.APP_MASTER_COMPLETED, exit=lpb.Exit(code=0))
        eventually(lambda: kept(lab) == ["cid", "dan"])
        assert set(service.sessions) == {"dan"}
        assert set(service.stalled_masters._seen) <= {"cid", "dan"}
        (node,) = service.nodes
        eventually(lambda: lab.arbiter.call(service.forget) or "ana" not in node.app_masters)
        for _ in range(2):
            assert [(app.app, app.state) for app in lab.seen().apps] == [
                ("ana", "finished"), ("bob", "finished"), ("cid", "finished"), ("dan", "running")
            ]  # fmt: skip
            assert [one.job for one in lab.seen(app="ana").jobs] == ["ana/1"]
            ana = masters["ana"]
            answer = ana.call()
            assert (answer.a_m_command, answer.diagnostics) == (pb.AM_SHUTDOWN, "ana is over: finished, done")
            code, why = code_of(ana.register)
            assert (code, why) == (grpc.StatusCode.FAILED_PRECONDITION, "ana is over: finished, done")
            assert ana.finish().is_unregistered
            again = lab.client().Cancel(pb.CancelRequest(app="ana"), metadata=lab.operator)
            assert (again.was_over, again.state) == (True, "finished")
            assert lab.submit("ana", request_id="id of ana").app == "ana"  # the same submission, once more
            assert kept(lab) == ["cid", "dan"]
            lab.restart(keep_apps=1)
            lab.ready()
        assert lab.submit("bob").app == "bob-2"
        assert live.call().a_m_command == pb.AM_RESYNC


# --- machines -------------------------------------------------------------------------------------------------------


def test_a_container_without_a_lease_is_stopped(lab: Any) -> None:
    lab.launcher.containers = [
        lpb.ContainerStatus(container_id="x", app="ghost", slot=3, epoch=5, state=lpb.RUNNING, version=1)
    ]
    revoked = eventually(lambda: [order for order in lab.launcher.revoked if order.slot == 3])
    assert (revoked[0].epoch, revoked[0].deadline_seconds) == (5, 0.0)


def test_a_silent_machine_is_lost_and_fenced_before_its_slots_are_used_again(lab: Any) -> None:
    master = running(lab)
    lab.lose()
    assert lab.slots("down") == [0, 1, 2, 3]
    master.beat_until(lambda: master.ended)
    assert code_of(lab.launcher.beat)[0] is grpc.StatusCode.FAILED_PRECONDITION
    lab.launcher.busy = {0}
    lab.launcher.register()
    lab.beating = lab_module.Beating(lab.launcher)
    eventually(lambda: set(lab.launcher.fenced) == {0, 1, 2, 3})
    for _ in range(3):
        master.beat()
    assert lab.slots("down") == [0, 1, 2, 3]
    lab.launcher.busy = set()
    master.beat_until(lambda: master.leases)
    assert min(lease.epoch for lease in master.leases.values()) > max(lab.launcher.fenced.values())


def test_calls_are_refused_before_a_machine_has_registered(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        code, why = code_of(lab.submit)
        assert (code, why) == (grpc.StatusCode.UNAVAILABLE, "the arbiter waits for its machines")
        health = lab.client().Health(pb.HealthRequest(), metadata=lab.operator)
        assert not health.ready
        lab.ready()
        assert lab.client().Health(pb.HealthRequest(), metadata=lab.operator).slots == 4


def test_calls_before_the_first_node_has_joined_are_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.arbiter.service.started_at -= 60.0  # the own machine's launcher would be here by now
        client = lab.client()
        calls = [
            lab.submit,
            lambda: client.List(pb.ListRequest(), metadata=lab.operator),
            lambda: client.DrainNode(pb.DrainNodeRequest(node="b08"), metadata=lab.operator),
            lambda: client.UndrainNode(pb.UndrainNodeRequest(node="b08"), metadata=lab.operator),
            lambda: client.RemoveNode(pb.RemoveNodeRequest(node="b08"), metadata=lab.operator),
        ]
        for call in calls:
            code, why = code_of(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "a node must join before the arbiter serves apps (eunomia nodes token makes a token" in why
        known = lab.client().ListNodes(pb.ListNodesRequest(), metadata=lab.operator)
        nodes_command._show(list(known.nodes), as_json=False)
        shown = capsys.readouterr().out
        assert shown.startswith("NODE") and "no node has joined yet: eunomia nodes token makes a token" in shown
        lab.ready()
        assert lab.submit("ana").app == "ana"


# --- restarts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_restarted_arbiter_has_exactly_the_same_state(lab: Any, checkpoint: bool) -> None:
    running(lab, "ana")
    waiting = lab.master("bob", "4")
    waiting.register()
    waiting.beat(jobs_added=[job("bob/1", least=4, most=4)])
    lab.quiet()
    arbiter = lab.arbiter
    service = arbiter.service
    arbiter.close(checkpoint=checkpoint)
    before = json.loads(zlib.decompress(service.driver.arbiter.save()))
    with Journal.open(arbiter.settings.journal) as journal:
        cluster = service.nodes.layout.cluster
        again = Arbiter(cluster, service.profile.stages(cluster), Profile.fallback().stages(cluster))
        steps = recover(again, journal)
        assert bool(steps) is not checkpoint
    lab.arbiter = lab_module.Arbiter(arbiter.settings.state_dir)  # for the fixture to close
    after = json.loads(zlib.decompress(again.save()))
    assert {name: after[name] for name in after if after[name] != before[name]} == {}
    assert after == before


def test_app_masters_register_again_after_a_restart_and_epochs_continue(lab: Any) -> None:
    master = running(lab)
    (lease,) = master.leases.values()
    lab.restart()
    lab.ready()
    assert master.call().a_m_command == pb.AM_RESYNC
    welcome = master.register()
    assert [(known.id, known.epoch) for known in welcome.leases] == [(lease.id, lease.epoch)]
    assert welcome.leases[0].containers[0].container_token == lease.containers[0].container_token
    assert [view.job for view in welcome.jobs] == ["ana/1"]
    assert [known.node for known in welcome.node_tokens] == [NODE]
    assert welcome.now >= welcome.arrived_at
    master.beat(jobs_added=[job()])
    other = lab.master("other")
    other.register()
    other.beat_until(lambda: other.leases, jobs_added=[job("other/1")])
    assert min(known.epoch for known in other.leases.values()) > lease.epoch
    assert lab.submit().app == "ana-2"


def test_pending_revocations_are_repeated_by_a_restarted_arbiter(lab: Any) -> None:
    master = running(lab)
    lab.launcher.busy = {0, 1}
    master.beat(jobs_finished=["ana/1"])
    eventually(lambda: lab.slots("leaving") == [0, 1])
    lab.restart()
    lab.launcher.revoked.clear()
    lab.ready()
    eventually(lambda: {order.slot for order in lab.launcher.revoked} == {0, 1})
    assert all(order.deadline_seconds < 30.0 for order in lab.launcher.revoked)
    lab.launcher.busy = set()
    eventually(lambda: lab.slots("free") == [0, 1, 2, 3])


def test_ended_apps_and_the_clock_are_restored_after_a_restart(lab: Any) -> None:
    master = running(lab)
    master.finish(final_application_status=pb.FAILED, diagnostics="all its jobs failed")
    before = lab.seen().now
    lab.restart()
    lab.ready()
    app = lab.app("ana")
    assert (app.state, app.why) == ("failed", "all its jobs failed")
    assert lab.seen().now >= before


def test_a_restart_with_another_policy_continues_from_the_journal(lab: Any) -> None:
    running(lab)
    lab.restart(policy="las")
    lab.ready()
    health = lab.client().Health(pb.HealthRequest(), metadata=lab.operator)
    assert (health.serving, health.apps) == ("las", 1)
    assert lab.slots("held") == [0, 1]


def test_a_change_of_memory_alone_is_another_order_to_the_node(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = lab.arbiter.service
    node = next(iter(service.nodes))

    def keys(memory_gib: float) -> frozenset[Any]:
        tune = lpb.Tune(slot=0, epoch=1, cpus=1.0, memory_gib=memory_gib)
        monkeypatch.setattr(service.nodes, "tunes", lambda *_: [tune])
        return service._order_keys(node, [])

    found = lab.arbiter.call(lambda: [keys(float(memory)) for memory in ("1", "2", "2", "nan", "nan")])
    assert len(set(found)) == 3
