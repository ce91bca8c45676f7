"""Requests that are too large, too frequent, malformed or another app's: a clear error each, and no change."""

import importlib.util
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia_appmaster.client import Client
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.service import bounds, sessions
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.rates import MOST_NAMES, RETRY_KEY, Rate
from eunomia_appmaster.service.refusals import ERRORS_KEY, TEXT_BYTES, header_text

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
Master, NODE, PATIENCE = lab_module.Master, lab_module.NODE, lab_module.PATIENCE_SECONDS


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path, heartbeat=0.05) as made:
        yield made.ready()


def refused(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def facts(lab: Any) -> str:
    """All that people see of apps, jobs and slots, without the passing of time."""
    seen = lab.seen()
    for field in ("now", "next_round_in_seconds"):
        seen.ClearField(field)
    for app in seen.apps:
        for field in ("age_seconds", "ends_in_seconds", "rho", "app_master"):
            app.ClearField(field)
    for job in seen.jobs:
        job.ClearField("iterations_done")
    for slot in seen.slots:
        slot.ClearField("iterations_done")
        slot.ClearField("reported_seconds_ago")
        slot.ClearField("ends_in_seconds")
    return str(seen)


def running(lab: Any, name: str = "ana") -> Any:
    """An app whose first job runs on two slots."""
    master = lab.master(name)
    master.register()
    master.beat_until(lambda: master.leases, jobs_added=[job(f"{name}/1")])
    master.beat()
    return master


def job(name: str, **more: Any) -> pb.JobAdded:
    return pb.JobAdded(**{"job": name, "least": 2, "most": 2, "iterations": 100.0, **more})


# --- bounds by themselves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.AllocateRequest(app="a" * 501), "a text must have at most 500 letters, but got 501 (app)"),
        (
            pb.AllocateRequest(jobs_finished=["a/1"] * 10_001),
            "a list must have at most 10000 items, but got 10001 (jobs_finished)",
        ),
        (
            pb.AllocateRequest(jobs_added=[job("a/1"), job("a/2", iterations=math.nan)]),
            "a number must be from 0 to 1e+15, but got nan (jobs_added[1].iterations)",
        ),
        (
            pb.AllocateRequest(jobs_failed=[pb.JobFailed(job="a/1", again_in_seconds=math.inf)]),
            "a number must be from 0 to 1e+09, but got inf (jobs_failed[0].again_in_seconds)",
        ),
        (
            pb.AllocateRequest(rates=[pb.MeasuredRate(job="a/1", gpus=1, locality=7)]),  # type: ignore[arg-type]
            "Locality must be one of ISLAND, MACHINE, RACK, CLUSTER, but got 7 (rates[0].locality)",
        ),
        (
            pb.AllocateRequest(division=pb.Division(jobs=[pb.JobSlots(job="a/1", gpus=[0, -1])])),
            "a number must be from 0 to 65536, but got -1 (division.jobs[0].gpus)",
        ),
        (
            pb.SubmitRequest(env={f"K{number}": "" for number in range(17)}),
            "a list must have at most 16 items, but got 17 (env)",
        ),
        (lpb.RegisterNodeRequest(cpus=-1.0), "a number must be from 0 to 1e+15, but got -1.0 (cpus)"),
    ],
)
def test_a_field_out_of_its_limits_is_refused_with_rule_and_value(message: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        bounds.check(message)
    assert str(caught.value) == words


def test_every_limit_names_an_existing_field() -> None:
    messages = {**pb.DESCRIPTOR.message_types_by_name, **lpb.DESCRIPTOR.message_types_by_name}
    for name in bounds.BOUNDS:
        message, _, field = name.partition(".")
        assert field in messages[message].fields_by_name, name


@given(st.lists(st.floats(0.0, 30.0), max_size=60))
def test_a_rate_limit_allows_its_burst_and_the_rate_accrued_since(pauses: list[float]) -> None:
    rate, now, given_out = Rate("things", per_second=2.0, burst=5.0), 0.0, 0
    for pause in pauses:
        now += pause
        wait = rate.take("a", now)
        given_out += wait == 0.0
        assert wait == 0.0 or rate.take("a", now + wait * 1.001 + 1e-9) == 0.0 or wait <= 0.5
        if wait > 0.0:
            given_out += 1
            now += wait * 1.001 + 1e-9
        assert given_out <= 5.0 + 2.0 * now + 1e-6


def test_rate_limits_forget_the_caller_whose_last_call_is_oldest() -> None:
    rate = Rate("things", per_second=1.0, burst=1.0)
    assert rate.take("first", 0.0) == 0.0
    for number in range(MOST_NAMES):
        assert rate.take(str(number), 0.0) == 0.0
    assert len(rate._buckets) == MOST_NAMES
    assert rate.take("first", 0.0) == 0.0


def test_rate_limits_use_no_memory_for_callers_that_are_gone() -> None:
    rate = Rate("things", per_second=1.0, burst=2.0)
    for number in range(100):
        assert rate.take(f"app-{number}", now=0.0) == 0.0
    assert rate.callers == 100, "their buckets are not full yet"
    for number in range(60):
        rate.take("app-100", now=10.0 + number)
    assert rate.callers == 1


# --- over the wire --------------------------------------------------------------------------------------------------

REPORTS = [
    ({"jobs_failed": [pb.JobFailed(job="ana/1", again_in_seconds=math.nan)]}, "jobs_failed[0].again_in_seconds"),
    ({"jobs_resumed": [pb.JobResumed(job="ana/1", iterations=-1.0)]}, "jobs_resumed[0].iterations"),
    ({"jobs_progress": [pb.JobProgress(job="ana/1", iterations_done=math.inf)]}, "jobs_progress[0].iterations_done"),
    ({"adaptations": [pb.Adaptation(job="ana/1", batch_size=-1.0)]}, "adaptations[0].batch_size"),
    ({"jobs_added": [job("ana/2", least=0)]}, "a number must be from 1 to 65536, but got 0 (jobs_added[0].least)"),
    ({"jobs_added": [job("ana/2", least=3)]}, "least at most most, but got 3 to 2 (ana/2)"),
    ({"jobs_added": [job("ana/2", kind="k" * 501)]}, "at most 500 letters, but got 501"),
    ({"jobs_finished": ["ana/1"] * 10_001}, "at most 10000 items"),
    ({"rates": [pb.MeasuredRate(job="ana/1", gpus=5, rate=1.0, gpu_type="cpu")]}, "at most the cluster's 4 GPUs"),
    ({"rates": [pb.MeasuredRate(job="ana/1", gpus=1, rate=1.0, gpu_type="H9000")]}, 'cluster (cpu), but got "H9000"'),
    ({"jobs_finished": ["bob/1"]}, 'the app\'s own, as app/number, but got "bob/1" (ana)'),
    ({"jobs_paused": ["ana/1/../1"]}, "the app's own"),
    ({"division": pb.Division(jobs=[pb.JobSlots(job="ana/1", gpus=[0, 0])])}, "each job and each GPU once"),
    ({"division": pb.Division(jobs=[pb.JobSlots(job="ana/1", gpus=[2, 3])])}, "within the app's leases"),
    ({"release": [pb.Release(lease=1, epoch=1, gpus=[-1])]}, "release[0].gpus"),
    ({"bid": pb.Bid(offer=77)}, "a bid must"),
    ({"bid": pb.Bid(offer=77, encoded="[" * 100_000)}, "JSON of eunomia.contract.codec"),
    ({"bid": pb.Bid(offer=77, encoded=json.dumps({"is": "Scores", "score": "high"}))}, "a column of at most"),
]


def test_reports_beyond_the_limits_change_nothing_and_are_refused(lab: Any) -> None:
    ana, _ = running(lab, "ana"), running(lab, "bob")
    before = facts(lab)
    for reports, words in REPORTS:
        first = ana.beat(**reports)
        errors = [*first.refused, first.bid_error]
        for _ in range(20):
            if any(errors):
                break
            answer = ana.beat()
            errors += [*answer.refused, answer.bid_error]
        assert words in " ".join(errors)
    assert facts(lab) == before


def test_an_app_cannot_release_leases_or_containers_of_another(lab: Any) -> None:
    ana, bob = running(lab, "ana"), running(lab, "bob")
    (lease,) = bob.leases.values()
    before = facts(lab)
    gpus = [container.gpu for container in lease.containers]
    ana.beat(release=[pb.Release(lease=lease.id, epoch=lease.epoch + 1, gpus=gpus)])
    ana.beat()
    assert facts(lab) == before
    theirs = {container.container_token for lease in bob.leases.values() for container in lease.containers}
    mine = {container.container_token for lease in ana.leases.values() for container in lease.containers}
    assert not theirs & mine


def test_requests_with_wrong_tokens_or_for_other_apps_change_nothing(lab: Any) -> None:
    ana, bob = running(lab, "ana"), running(lab, "bob")
    before = facts(lab)
    own = grpc.StatusCode.PERMISSION_DENIED
    stub = ana.stub()
    for request, method in (
        (pb.AllocateRequest(app="bob", attempt=1, jobs_finished=["bob/1"]), stub.Allocate),
        (pb.RegisterApplicationMasterRequest(app="bob", attempt=9), stub.RegisterApplicationMaster),
        (pb.FinishApplicationMasterRequest(app="bob", attempt=9), stub.FinishApplicationMaster),
    ):
        errors = refused(lambda call=method, sent=request: call(sent, metadata=ana.token))
        assert errors == (own, 'an app may touch only what is its own, but got "bob"')
        for token in ((), (("authorization", "Bearer app:bob:00"),), (("authorization", "Bearer " + "x" * 5000),)):
            code, words = refused(lambda call=method, sent=request, with_=token: call(sent, metadata=with_))
            assert (code, "must carry the arbiter's token" in words) == (grpc.StatusCode.UNAUTHENTICATED, True)
    assert bob.beat().a_m_command == pb.AM_NONE
    assert facts(lab) == before


def test_malformed_and_oversized_messages_are_refused(lab: Any) -> None:
    ana = running(lab, "ana")
    before = facts(lab)
    call = lab.channel.unary_unary("/eunomia.arbiter.ApplicationMasterProtocol/Allocate")
    for content in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x07", pb.AllocateRequest(app="ana").SerializeToString()[:-1]):
        code, words = refused(lambda sent=content: call(sent, metadata=ana.token, timeout=PATIENCE))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert (
            words == f"a message must be readable as the request of Allocate, but got {len(content)} bytes that are not"
        )
    code, words = refused(lambda: call(bytes(bounds.MAX_REQUEST_BYTES + 1), metadata=ana.token, timeout=PATIENCE))
    assert (code, "larger than max" in words) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
    nothing = lab.channel.unary_unary("/eunomia.arbiter.ApplicationMasterProtocol/Rule")
    assert refused(lambda: nothing(b"", metadata=ana.token))[0] is grpc.StatusCode.UNIMPLEMENTED
    elsewhere = lab.channel.unary_unary("/eunomia.Elsewhere/Rule")
    assert refused(lambda: elsewhere(b"", metadata=ana.token))[0] is grpc.StatusCode.UNIMPLEMENTED
    code, words = refused(
        lambda: lab.client().Cancel(pb.CancelRequest(app="x" * 100_000), metadata=lab.operator, timeout=PATIENCE)
    )
    assert (code, words) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "a text must have at most 500 letters, but got 100000 (app)",
    )
    ana.beat()
    assert facts(lab) == before


def test_excessive_registrations_are_refused_while_other_apps_continue(lab: Any) -> None:
    ana, bob = running(lab, "ana"), running(lab, "bob")
    before = facts(lab)
    request = pb.RegisterApplicationMasterRequest(app="ana", attempt=1)
    register = ana.stub().RegisterApplicationMaster
    began = time.monotonic()
    calls = [register.future(request, metadata=ana.token, timeout=120.0) for _ in range(1000)]
    for _ in range(5):
        assert bob.beat().a_m_command == pb.AM_NONE
    bob.register()  # another app's registrations have a measure of their own
    errors = [error for call in calls if (error := call.exception()) is not None]
    assert {error.code() for error in errors} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    taken = 1000 - len(errors)
    assert 1 <= taken <= 20 + 5.0 * (time.monotonic() - began) + 1
    assert errors[-1].details().startswith("registrations of one app must be at most 5 a second, but got more (ana)")
    wait = dict(errors[-1].trailing_metadata())[RETRY_KEY]
    assert 0 < int(wait) <= 200
    assert facts(lab) == before


def test_too_many_concurrent_heartbeats_are_refused(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = running(lab, "ana")
    monkeypatch.setattr(sessions, "LEAST_SECONDS", 0.2)  # however slowly this machine calls
    request = pb.AllocateRequest(app="ana", attempt=1, response_id=ana.response_id)
    calls = [ana.stub().Allocate.future(request, metadata=ana.token, timeout=120.0) for _ in range(200)]
    errors = [error for call in calls if (error := call.exception()) is not None]
    codes = {error.code() for error in errors}
    assert codes <= {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT}
    assert any("heartbeats of an app master may be on their way" in error.details() for error in errors)


def test_an_answer_with_thousands_of_ended_apps_is_within_the_size_limit(lab: Any) -> None:
    ended = []
    for number in range(5000):
        app = App(
            name=f"a{number}", user="u", weight=1.0, tuner="none", trials=1, least=1, most=1, submitted_at=0.0,
            arrived_at=float(number),
        )  # fmt: skip
        app.end("failed", "what was wrong with it " * 50, 1.0 + number)
        ended.append(app.note())
    service = lab.arbiter.service
    lab.arbiter.call(lambda: service.journal.note(*ended))
    (token := lab.folder / "token").write_text(service.tokens.operator)
    with Client(lab.arbiter.address, token_file=token) as client:
        assert len(client.list().apps) == len(ended)


def test_the_number_of_jobs_of_an_app_is_limited(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from eunomia_appmaster.service import masters

    monkeypatch.setattr(masters, "MOST_JOBS", 3)
    master = lab.master()
    master.register()
    master.beat(jobs_added=[job("ana/1"), job("ana/2")])
    master.beat(jobs_finished=["ana/1"])
    before = [one.job for one in lab.seen().jobs]
    errors = master.beat(jobs_added=[job("ana/3"), job("ana/4")]).refused
    for _ in range(20):
        errors = errors or master.beat().refused
    assert list(errors) == ["an app must have at most 3 jobs, but got 2 in addition to 1 and 1 that have ended (ana)"]
    assert [one.job for one in lab.seen().jobs] == before
    master.beat(jobs_added=[job("ana/3")])
    assert "ana/3" in [one.job for one in lab.seen().jobs]


HEAD = '[app]\nname = "x"\nuser = "ana"\n[job]\ncommand = "python train.py"\nslots = 1\n'
WIDE = "".join(f'p{number} = {{type = "int", low = 0, high = {2**53}}}\n' for number in range(300))
LONG = '"' + "k" * 180_000 + '"'
LARGE = {
    "a grid of 300 parameters of 2^53 values": (f'{HEAD}[space]\n{WIDE}[tuner]\nsampler = "grid"\n', "about 1e4786"),
    "a quoted key of 180,000 letters": (f"{LONG} = 1\n{HEAD}", "at most 1000 characters, but got 180000 characters"),
    "a quoted table": (f"{HEAD}[{LONG}]\n", "at most 1000 characters, but got 180000 characters"),
    "a quoted variable": (f'{HEAD}[job.env]\n{LONG} = "3"\n', "at most 1000 characters, but got 180000 characters"),
    "a quoted key in a list": (f"{HEAD}[[x]]\ny = [{{{LONG} = 1}}]\n", "at most 1000 characters, but got 180000"),
    "a text beyond ASCII": (HEAD.replace('"ana"', '"' + "漢" * 60_000 + '"'), "user must be 1 to 64 letters"),
    "many errors": (f"{HEAD}[space]\n" + "".join(f'"{"é" * 200}{n}" = 3\n' for n in range(300)), "a parameter must be"),
}


@pytest.mark.parametrize("text,words", LARGE.values(), ids=LARGE)
def test_an_oversized_app_file_is_refused_with_its_errors(lab: Any, text: str, words: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        lab.submit("x", app_file=text)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()
    assert words in caught.value.details()
    (packed,) = (value for key, value in caught.value.trailing_metadata() if key == ERRORS_KEY)
    errors = pb.Errors.FromString(packed).errors
    assert any(words.partition(",")[0] in f"{error.rule} {error.value}" for error in errors)
    assert len(errors) == 1 or re.fullmatch(r"and \d+ more errors", errors[-1].rule)
    assert lab.seen().apps == []


@pytest.mark.parametrize("letter", ["k", "é", "漢", "\N{GRINNING FACE}", "%", "\n"])
def test_an_error_text_fits_into_its_header_whatever_its_characters(letter: str) -> None:
    for length in (10, 250, 999, 1001, 3000, 100_000):
        shown = header_text(letter * length)
        assert len(quote(shown, safe=" ", errors="replace")) <= TEXT_BYTES
        assert shown == letter * length or shown.endswith("...")
    assert header_text("short") == "short"
