"""Parts of the service on their own: messages, layouts, tokens, settings, the clock, the driver's split of events."""

import dataclasses
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.contract.bundles import Bundle, ByBundle, MachineClasses, Part
from eunomia.contract.decisions import Decision
from eunomia.contract.events import (
    Adapted,
    AppArrived,
    Event,
    ForecastReported,
    JobAdded,
    JobFailed,
    JobFinished,
    JobPaused,
    JobReported,
    JobResumed,
    JobsDivided,
    RateMeasured,
)
from eunomia.errors import InputError
from eunomia.journal.journal import Journal
from eunomia.model.adaptations import Adapts
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.units import Locality, Seconds
from eunomia_appmaster.master.outbox import AdaptationReport, BidReport, Life, Progress, RateReport, Reports
from eunomia_appmaster.master.wire import cluster_of, request_of
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.service import bounds
from eunomia_appmaster.service.app_record import App, read_app
from eunomia_appmaster.service.apps import REPEATED_SECONDS, SubmittedApps, in_order
from eunomia_appmaster.service.clock import Clock
from eunomia_appmaster.service.driver import _speaks_of
from eunomia_appmaster.service.ended_apps import EndedApps
from eunomia_appmaster.service.journaled import apps_of
from eunomia_appmaster.service.layout import Layout, Place
from eunomia_appmaster.service.messages import bid_of, cluster_message, events_of, own_job
from eunomia_appmaster.service.server import check_address
from eunomia_appmaster.service.settings import default_state_dir, run_dir
from eunomia_appmaster.service.tokens import Caller, Role, Tokens, publish_private

POSITIVE = st.floats(min_value=1e-6, max_value=1e9)
SLOWDOWNS = st.none() | st.tuples(*[st.floats(min_value=1.0, max_value=100.0)] * 4)
JOBS = st.builds(
    JobForecast,
    iterations_left=st.floats(min_value=0.0, max_value=1e9),
    seconds_per_iteration=POSITIVE,
    least=st.just(1),
    most=st.integers(1, 9),
    slowdown=SLOWDOWNS,
)
FORECASTS = st.builds(
    Forecast,
    phases=st.lists(st.builds(Phase, jobs=st.lists(JOBS, max_size=3).map(tuple)), max_size=3).map(tuple),
    total_gpu_seconds=POSITIVE,
    most=st.integers(1, 64),
)


@given(FORECASTS)
def test_the_report_of_an_app_master_is_decoded_into_the_same_events(forecast: Forecast) -> None:
    reports = Reports(
        added={
            "a/1": JobAdded(job="a/1", app="a", most=4, iterations=96.0, kind="a", cpus_per_gpu=0.5, epochs=3.0),
            "a/9": JobAdded(
                job="a/9", app="a", batch_size=32.0, samples_per_epoch=500.0, kind="resnet18", adapts=Adapts.ACCORDION
            ),
        },
        lives={
            "a/2": Life(what="finished"),
            "a/3": Life(what="failed", again_in=2.0, why="boom"),
            "a/4": Life(what="failed"),
            "a/5": Life(what="paused"),
            "a/6": Life(what="resumed", iterations=192.0),
            "a/7": Life(what="resumed"),
        },
        progress={"a/8": Progress(iterations_done=12.5, rate=3.25)},
        adapted=[
            AdaptationReport(job="a/8", batch_size=256.0, iterations_done=10.0, at=1000.0),
            AdaptationReport(job="a/8", batch_size=512.0, iterations_done=None, at=1004.0),
        ],
        rates=[
            RateReport(job="a/8", gpus=2, locality=Locality.RACK, gpu_type="cpu", rate=1.5, batch_size=256.0, cpus=3.0)
        ],
        forecast=forecast,
        division={"a/8": (0, 3)},
    )
    request = request_of("a", 1, 0, reports, now=1006.0)
    events = list(events_of(request, now=Seconds(50.0), date="2026-11-23", adapted_at=lambda _: Seconds(45.0)))
    resumed = [event for event in events if isinstance(event, JobResumed)]
    assert [event.iterations for event in resumed][:1] == [192.0]
    assert math.isnan(resumed[1].iterations)
    expected = [
        JobFinished(job="a/2"),
        JobFailed(job="a/3", again_in=2.0, why="boom"),
        JobFailed(job="a/4"),
        JobPaused(job="a/5"),
        JobReported(job="a/8", iterations_done=12.5, rate=3.25),
        RateMeasured(
            job="a/8",
            gpus=2,
            locality=Locality.RACK,
            rate=1.5,
            gpu_type="cpu",
            batch_size=256.0,
            cpus=3.0,
            memory_gib=-1.0,
            date="2026-11-23",
        ),
        Adapted(job="a/8", batch_size=256.0, iterations_done=10.0, at=Seconds(45.0)),  # not before the last one
        Adapted(job="a/8", batch_size=512.0, at=Seconds(48.0)),
        JobsDivided(app="a", jobs=("a/8",), gpus=((0, 3),)),
        ForecastReported(app="a", forecast=forecast),
    ]
    assert [_measured_at_last(event) for event in events if not isinstance(event, JobAdded | JobResumed)] == expected
    added = events[0]
    assert isinstance(added, JobAdded)
    assert (added.most, added.iterations, added.kind, added.cpus_per_gpu) == (4, 96.0, "a", 0.5)
    assert math.isnan(added.batch_size)
    assert (added.epochs, added.adapts) == (3.0, Adapts.UNKNOWN)
    other = events[1]
    assert isinstance(other, JobAdded)
    assert (other.batch_size, other.samples_per_epoch, other.adapts) == (32.0, 500.0, Adapts.ACCORDION)
    assert other.kind == "resnet18"  # jobs of other apps may have it, too


def _measured_at_last(event: Event) -> Event:
    """An unknown amount is NaN, which equals nothing."""
    if isinstance(event, RateMeasured) and math.isnan(event.memory_gib):
        return dataclasses.replace(event, memory_gib=-1.0)
    return event


@pytest.mark.parametrize("kind", ["", "a b", "x" * 65, "-a"])
def test_an_invalid_kind_of_job_is_refused(kind: str) -> None:
    request = pb.AllocateRequest(app="a", jobs_added=[pb.JobAdded(job="a/1", least=1, most=1, kind=kind)])
    with pytest.raises(InputError, match="a kind must be 1 to 64 letters"):
        list(events_of(request))


def test_a_rate_with_zero_cpus_is_refused() -> None:
    rate = pb.MeasuredRate(job="a/1", gpus=1, rate=1.0, gpu_type="cpu", cpus=0.0)
    with pytest.raises(InputError, match="cpus"):
        bounds.check(pb.AllocateRequest(app="a", rates=[rate]))


def test_an_empty_division_is_valid() -> None:
    (event,) = events_of(request_of("a", 1, 0, Reports(division={})))
    assert event == JobsDivided(app="a", jobs=(), gpus=())
    assert not list(events_of(request_of("a", 1, 0, Reports())))


@pytest.mark.parametrize("name", ["b/1", "a", "a/", "a/x", "a/1/2", "/1", "a/1 ", "a/-1", "a/12345678901"])
def test_a_job_of_another_app_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="the app's own"):
        own_job("a", name)


@pytest.mark.parametrize(
    "change",
    [
        {"iterations_left": math.nan},
        {"iterations_left": -1.0},
        {"seconds_per_iteration": 0.0},
        {"seconds_per_iteration": math.inf},
        {"least": 0},
        {"least": 5},
        {"slowdown": [1.0]},
        {"slowdown": [0.5, 1.0, 1.0, 1.0]},
    ],
    ids=str,
)
def test_a_forecast_must_have_finite_work(change: dict[str, object]) -> None:
    values = {"iterations_left": 1.0, "seconds_per_iteration": 1.0, "least": 1, "most": 4} | change
    forecast = pb.Forecast(phases=[pb.Phase(jobs=[pb.JobForecast(**values)])], total_gpu_seconds=1.0, most=1)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        list(events_of(pb.AllocateRequest(app="a", forecast=forecast)))


def test_a_bid_table_is_decoded_as_it_was_encoded() -> None:
    classes = MachineClasses.of(machine=[0, 1], free=[4, 2], gpu_type=[0, 1], rack=[0, 0], named=[1])
    rows = [Bundle(1.5, (Part(0, 4, 1),)), Bundle(0.1 + 0.2, (Part(0, 1, 1), Part(1, 2, 1)))]
    table = ByBundle.of(classes, [2.0], [rows])
    request = request_of("a", 1, 0, Reports(bid=BidReport(offer=7, table=table)))
    bid = bid_of("a", request.bid)
    assert (bid.app, bid.offer) == ("a", 7)
    assert isinstance(bid.form, ByBundle)
    assert bid.form.classes.same(classes)
    assert list(bid.form.bundles(0)) == rows
    bid.form.check(classes=classes)
    for column in ("now", "start", "rho", "part_start", "part_class", "part_gpus", "part_machines"):
        seen, sent = getattr(bid.form, column), getattr(table, column)
        assert seen.dtype == sent.dtype
        np.testing.assert_array_equal(seen, sent)


# --- layouts --------------------------------------------------------------------------------------------------------


def node(name: str, *slots: tuple[str, int]) -> lpb.RegisterNodeRequest:
    made = [lpb.Slot(index=index, gpu_type=kind, island=island) for index, (kind, island) in enumerate(slots)]
    return lpb.RegisterNodeRequest(node=name, slots=made, cpus=8.0, memory_gib=32.0)


def test_a_cluster_built_from_nodes_is_decoded_unchanged_by_an_app_master() -> None:
    two = node("b", ("A100", 0), ("T4", 0), ("A100", 0), ("A100", 1), ("A100", 1))
    layout = Layout.of([two, node("a", ("cpu", 0), ("cpu", 0))])
    assert [(machine.name, machine.gpu_type, machine.gpus) for machine in layout.cluster.machines] == [
        ("a", "cpu", 2),
        ("b-A100", "A100", 4),
        ("b-T4", "T4", 1),
    ]
    assert layout.places == tuple(
        Place(node=name, slot=slot)
        for name, slot in (("a", 0), ("a", 1), ("b", 0), ("b", 2), ("b", 3), ("b", 4), ("b", 1))
    )
    assert (layout.gpus_of("b"), layout.machines_of("b")) == ([2, 3, 4, 5, 6], ["b-A100", "b-T4"])
    assert (layout.gpu("b", 1), layout.gpu("b", 9)) == (6, None)
    assert layout.cluster.machines[1].island == 2
    assert layout.cluster.machines[1].cpus == pytest.approx(6.4)
    again = cluster_of(cluster_message(layout.cluster))
    assert again.machines == layout.cluster.machines
    assert Layout.decoded(layout.encoded()).places == layout.places
    assert layout.change(two) is None
    changed = layout.change(node("b", ("T4", 0)))  # in place of an A100; slot 1, the only T4, is missing
    assert changed is not None
    assert [layout.cluster.machines[row].name for row in changed.left] == ["b-A100"]
    assert [(one.machine.name, one.slots) for one in changed.joined] == [("b", (0,))]


def test_a_node_needs_slots() -> None:
    with pytest.raises(InputError):
        Layout.of([node("a")])


# --- tokens, places, clock ------------------------------------------------------------------------------------------


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("user-agent", "x"), ("authorization", f"Bearer {token}"))


def test_tokens_identify_the_caller_and_cannot_be_forged() -> None:
    tokens, others = Tokens(b"x" * 32), Tokens(b"y" * 32)
    assert tokens.caller(bearer(tokens.operator)) == Caller(role=Role.OPERATOR)
    assert tokens.caller(bearer(tokens.launcher)) == Caller(role=Role.LAUNCHER)
    assert tokens.caller(bearer(tokens.app("a.b-c"))) == Caller(role=Role.APP, app="a.b-c")
    assert Tokens(b"x" * 32).caller(bearer(tokens.app("a"))) == Caller(role=Role.APP, app="a")
    forged = tokens.app("a").replace("app:a", "app:b")
    for token in (others.operator, forged, "", "operator", tokens.app("a").replace("app:a", "operator:"), "ä:ö:ü"):
        assert tokens.caller(bearer(token)) is None
    assert tokens.caller(()) is None
    assert tokens.caller(None) is None


def test_private_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "run" / "token"
    publish_private(file, "one")
    publish_private(file, "two")
    assert file.read_text() == "two"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [path.name for path in file.parent.iterdir()] == ["token"]


def test_addresses_beyond_loopback_need_tls_and_malformed_ones_are_refused(tmp_path: Path) -> None:
    assert check_address("localhost:0") == ("localhost", 0)
    for address in ("10.0.0.1:7720", "0.0.0.0:1", "example.org:80"):
        with pytest.raises(InputError, match="needs TLS"):
            check_address(address)
    for address in ("7720", "127.0.0.1:", "127.0.0.1:x", ":1", "127.0.0.1:99999"):
        with pytest.raises(InputError, match="HOST:PORT"):
            check_address(address)


def test_each_state_folder_has_its_own_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EUNOMIA_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "r"))
    assert default_state_dir() == tmp_path / "s" / "eunomia"
    assert run_dir(default_state_dir()) == tmp_path / "r" / "eunomia"
    assert run_dir(tmp_path / "other") == tmp_path / "other" / "run"
    monkeypatch.setenv("EUNOMIA_STATE_DIR", str(tmp_path / "named"))
    assert run_dir(default_state_dir()) == tmp_path / "named" / "run"


def test_the_clock_of_the_arbiter_never_goes_back() -> None:
    assert 0.0 <= Clock().now() < 5.0
    assert Clock(last=100.0, away=50.0).now() >= 150.0
    assert Clock(last=100.0, away=-3600.0).now() >= 100.0


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_jump_of_the_wall_clock_does_not_change_the_clock_of_the_arbiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    with Journal.open(tmp_path / "journal.sqlite", durable=False) as journal:
        clock = Clock.after(journal, None)
        journal.append(100.0, [], Decision(now=100.0, round=0, version=0))
        (last,) = journal.steps()
        before, real = float(clock.now()), time.time
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        assert 0.0 <= float(clock.now()) - before < 60.0
        assert 100.0 <= float(Clock.after(journal, last).now()) < 160.0  # over a restart of the arbiter


def test_after_a_reboot_downtime_is_measured_by_the_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.open(tmp_path / "journal.sqlite", durable=False) as journal:
        Clock.after(journal, None)
        journal.append(100.0, [], Decision(now=100.0, round=0, version=0), at=time.time() - 600.0)
        (last,) = journal.steps()
        monkeypatch.setattr("eunomia_appmaster.service.clock.boot_id", lambda: "another")
        for _ in range(2):  # the second time it is known, but the last step is from before it
            assert 700.0 <= float(Clock.after(journal, last).now()) < 760.0


def test_reports_on_a_new_job_wait_for_the_job() -> None:
    added = {"a/1"}
    assert _speaks_of(JobPaused(job="a/1"), added)
    assert _speaks_of(JobsDivided(app="a", jobs=("a/2", "a/1"), gpus=((0,), (1,))), added)
    assert not _speaks_of(JobPaused(job="a/2"), added)
    assert not _speaks_of(JobResumed(job="a/1"), added)  # folded after jobs are added
    assert not _speaks_of(JobAdded(job="a/1", app="a"), added)
    assert not _speaks_of(AppArrived(app="a", user="u"), added)
    assert not _speaks_of(JobPaused(job="a/1"), set())


def test_records_of_apps_are_restored_from_their_notes(tmp_path: Path) -> None:
    app = App(name="a", user="u", weight=2.0, tuner="none", trials=1, least=1, most=2, submitted_at=1.0, arrived_at=0.5)
    app.take_standing(pb.Standing(metric="m", best=math.nan, last="x"))
    app.ended_jobs["a/1"] = "failed"
    app.end("failed", "no", 9.0)
    app.end("finished", "", 10.0)
    apps = SubmittedApps(tmp_path, {"a": read_app("a", app.note().value)})
    assert apps.get("a") == app
    assert (app.state, app.why, app.ended_at, app.standing["best"]) == ("failed", "no", 9.0, None)
    assert not apps.live
    (tmp_path / "b").mkdir()
    assert [apps.unique(name) for name in ("a", "b", "c")] == ["a-2", "b-2", "c"]


def test_only_the_most_recently_ended_apps_stay_in_memory(tmp_path: Path) -> None:
    apps = []
    with Journal.open(tmp_path / "journal.sqlite", durable=False) as journal:
        for number in range(6):
            app = App(
                name=f"a{number}", user="u", weight=1.0, tuner="none", trials=1, least=1, most=1, submitted_at=0.0,
                arrived_at=float(number), request_id=f"r{number}",
            )  # fmt: skip
            if number != 2:
                app.end("finished", "", 100.0 - number)  # the first to come end last
            apps.append(app)
        journal.note(*(app.note() for app in apps))
        made = SubmittedApps(tmp_path / "apps", apps_of(journal), keep=2, archive=EndedApps(journal.path))
        assert [app.name for app in made] == ["a0", "a1", "a2"]
        assert made.get("a5") == apps[5]
        assert made.get("a6") is None
        assert made.asked_before("r5") == apps[5]
        assert made.asked_before("") is None
        assert made.unique("a5") == "a5-2"
        assert in_order((*made.archived(), *made)) == apps
        (tmp_path / "apps" / ".a5.new").mkdir(parents=True)
        SubmittedApps(tmp_path / "apps", apps_of(journal), keep=0)
        assert (tmp_path / "apps" / "a5").is_dir()  # what was begun is finished for apps that are forgotten, too
    with pytest.raises(InputError, match="apps that are kept must be 0 or more, but got -1"):
        SubmittedApps(tmp_path / "apps", {}, keep=-1)


def test_a_submission_is_recognized_for_ten_minutes_and_then_forgotten(tmp_path: Path) -> None:
    apps = SubmittedApps(tmp_path, {}, keep=0)
    for number in range(3000):
        app = App(
            name=f"a{number}", user="u", weight=1.0, tuner="none", trials=1, least=1, most=1,
            submitted_at=5.0 * number, arrived_at=0.0, request_id=f"r{number}",
        )  # fmt: skip
        (tmp_path / f".a{number}.new").mkdir()
        apps.keep(app)
        if number == 2000:
            assert apps.asked_before("r2000") is app
            assert apps.asked_before("r1880") is not None
            assert apps.asked_before("r1879") is None
    assert len(apps._requests) == REPEATED_SECONDS / 5.0 + 1
