"""``eunomia explain`` on the folder of a run: the last moment that a job waited, a moment by name, its history."""

import dataclasses
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from eunomia import Cluster, Machine, Profile
from eunomia.arbiter import Arbiter
from eunomia.cli import run
from eunomia.contract.events import (
    AppArrived,
    AppFinished,
    Event,
    JobAdded,
    JobFailed,
    JobFinished,
    JobPaused,
    JobReported,
    JobResumed,
    Released,
    Started,
)
from eunomia.errors import InputError
from eunomia.journal.journal import Journal, Note
from eunomia.model.leases import LeaseState
from eunomia.units import AppId, Epoch, JobId, LeaseId, Seconds, UserId
from eunomia_appmaster.app.trials_file import TRIALS_COLUMNS
from eunomia_appmaster.commands import explain
from eunomia_appmaster.explaining.activity import Line
from eunomia_appmaster.explaining.interrupted import gaps, with_gaps
from eunomia_appmaster.explaining.past_runs import PastRun
from eunomia_appmaster.explaining.spells import Spell
from eunomia_appmaster.master.files import ActivityLog
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.layout import Layout, Place


class Writer:
    """An arbiter whose orders are obeyed at once, and whose steps are journaled."""

    def __init__(self, folder: Path) -> None:
        cluster = Cluster.build([Machine(name="box7", gpu_type="V100", gpus=4)])
        profile = Profile.load("default")
        self.arbiter = Arbiter(cluster, profile.stages(cluster), Profile.fallback().stages(cluster))
        self.journal = Journal.open(folder / "journal.sqlite", durable=False)
        layout = Layout.made(cluster, tuple(Place(node="box7", slot=slot) for slot in range(4)))
        self.journal.set_meta(layout=layout.encoded(), profile=profile.resolved(), policy="default", seed=0)

    def step(self, now: float, *events: Event) -> None:
        news: Sequence[Event] = events
        while news or not events:
            decision = self.arbiter.step(Seconds(now), list(news))
            self.journal.append(Seconds(now), list(news), decision)
            state = self.arbiter.state
            epoch = Epoch(state.counters.last_epoch)
            left: list[Event] = [
                Released(lease=LeaseId(lease), epoch=epoch, gpus=tuple(gpus))
                for lease, gpus in state.owners.leaving.items()
                if gpus
            ]
            news = left or [
                Started(lease=LeaseId(lease.id), epoch=Epoch(lease.epoch))
                for lease in state.leases.values()
                if lease.state is LeaseState.ORDERED
            ]

    def submit(self, now: float, name: str, gpus: int, *, jobs: int = 1) -> None:
        added = [
            JobAdded(
                job=JobId(f"{name}/{number}"),
                app=AppId(name),
                least=gpus,
                most=gpus,
                iterations=100.0,
                seconds_per_iteration=1.0,
            )
            for number in range(jobs)
        ]
        self.step(now, AppArrived(app=AppId(name), user=UserId("ana"), divides=False), *added)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``a`` has 3 of 4 slots until 30 s; ``b``, two gangs of 2, waits for it; ``c`` is paused for a while."""
    writer = Writer(tmp_path)
    writer.submit(0.0, "a", 3)
    writer.submit(5.0, "b", 2, jobs=2)
    writer.step(10.0, JobPaused(job=JobId("b/1")))
    writer.step(12.0, JobResumed(job=JobId("b/1")))
    writer.step(30.0, JobFinished(job=JobId("a/0")), AppFinished(app=AppId("a")))
    writer.step(60.0, JobFinished(job=JobId("b/0")), JobFinished(job=JobId("b/1")), AppFinished(app=AppId("b")))
    writer.journal.close()
    return tmp_path


def test_explain_shows_the_last_moment_at_which_the_job_waited(folder: Path) -> None:
    (said,) = PastRun(folder).explanations("b/0")
    assert (said.state, said.reason, said.stage, said.plugin) == ("waiting", "outranked", "allocation", "ordered")
    assert (said.app, said.user, said.least, said.seconds) == ("b", "ana", 2, 7.0)
    assert said.numbers["free"] == 1.0
    assert {way.what for way in said.frees} == {"release", "gpus"}
    assert said.text.startswith("It wants 2 slots; 1 free now")
    assert list(said.starts_in_seconds) == pytest.approx([100.0 / 3.0 - 12.0] * 2)


def test_all_jobs_of_an_app_are_explained_at_a_given_time(folder: Path) -> None:
    run_ = PastRun(folder)
    assert [(one.job, one.reason) for one in run_.explanations("b", 11.0)] == [
        ("b/0", "outranked"),
        ("b/1", "paused_by_app"),
    ]
    (later,) = run_.explanations("b/0", 25.0)
    assert (later.reason, later.seconds) == ("outranked", 20.0)
    assert [(one.state, one.reason) for one in run_.explanations("b", 40.0)] == [("running", "")] * 2


def test_a_running_job_is_shown_with_the_time_since_its_last_start(folder: Path) -> None:
    assert [one.seconds for one in PastRun(folder).explanations("b", 40.0)] == [10.0] * 2


def test_a_job_that_never_waited_is_shown_as_running_at_the_given_time(folder: Path) -> None:
    (said,) = PastRun(folder).explanations("a/0", 20.0)
    assert (said.state, said.reason, said.slots, said.iterations_done) == ("running", "", 3, 60.0)


def test_the_history_of_a_job_is_shown(folder: Path) -> None:
    spells = PastRun(folder).history("b/1")
    assert [(spell.start, spell.end, spell.state, spell.reason) for spell in spells] == [
        (5.0, 10.0, "waiting", "outranked"),
        (10.0, 12.0, "paused", "paused_by_app"),
        (12.0, 30.0, "waiting", "outranked"),
        (30.0, 60.0, "running", ""),
    ]


def test_the_history_of_a_suspended_app_names_the_suspension_and_its_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(tmp_path)
    writer.submit(0.0, "a", 3)
    quota = "the app's folder takes 2.00 GiB of disk, more than its quota of 1.00 GiB"
    writer.step(10.0, JobPaused(job=JobId("a/0"), suspended=quota))
    writer.step(12.0, JobResumed(job=JobId("a/0")))
    writer.step(30.0, JobFinished(job=JobId("a/0")), AppFinished(app=AppId("a"), failed=False))
    writer.journal.close()
    spells = PastRun(tmp_path).history("a/0")
    assert [(spell.start, spell.end, spell.state, spell.reason, spell.text) for spell in spells] == [
        (0.0, 10.0, "running", "", ""),
        (10.0, 12.0, "paused", "suspended", quota),
        (12.0, 30.0, "running", "", ""),
    ]
    run(["explain", "a/0", "--history", "--run", str(tmp_path)])
    assert f"suspended: {quota}" in capsys.readouterr().out
    (said,) = PastRun(tmp_path).explanations("a/0", 11.0)
    assert (said.reason, said.text, [way.text for way in said.frees]) == (
        "suspended",
        "Its app a is suspended.",
        ["a goes on"],
    )


LEASE_ENDED = "the node's lease ends, since the arbiter does not answer"


@pytest.fixture
def outage(tmp_path: Path) -> Path:
    """The arbiter is away from 20 s to 320 s; the workers of ``a/0`` end at 92 s, and start again at 325 s."""
    writer = Writer(tmp_path)
    began = 1_000_000.0
    append = writer.journal.append
    writer.journal.append = lambda now, *given: append(now, *given, at=began + now)  # type: ignore[method-assign, assignment]
    writer.submit(0.0, "a", 3)
    for now in (20.0, 320.0):
        writer.step(now, JobReported(job=JobId("a/0"), iterations_done=now, rate=1.0))
    writer.step(330.0, JobFinished(job=JobId("a/0")), AppFinished(app=AppId("a"), failed=False))
    writer.journal.close()
    noted = ActivityLog(tmp_path / "apps" / "a" / "activity" / "a1-g1.jsonl", "a")
    (tmp_path / "apps" / "a" / "activity").mkdir(parents=True)
    job = Job(number=0, parameters={}, seed=0)
    for at, event, why in [
        (0.2, "start", ""),
        (0.9, "running", ""),
        (92.0, "suspended", LEASE_ENDED),
        (325.0, "start", ""),
        (325.4, "failed", "a restart within a second is none"),
        (326.0, "start", ""),
        (329.9, "finished", ""),
    ]:
        noted.note(event, job, began + at, why=why)
    return tmp_path


def test_the_history_shows_the_gap_in_which_a_job_had_no_workers(
    outage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spells = PastRun(outage).history("a/0")
    assert [(spell.state, spell.text) for spell in spells] == [
        ("running", ""),
        ("interrupted", LEASE_ENDED),
        ("running", ""),
    ]
    assert [spell.start for spell in spells] == pytest.approx([0.0, 92.0, 325.0])
    assert [spell.end for spell in spells] == pytest.approx([92.0, 325.0, 330.0])
    assert run(["explain", "a/0", "--run", str(outage), "--history"]) == 0
    assert re.search(rf"a/0 +1m32s +3m53s +interrupted +- +{LEASE_ENDED}", capsys.readouterr().out)
    assert run(["explain", "a/0", "--run", str(outage), "--history", "--json"]) == 0
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["state"], one["reason"], one["text"]) for one in made][1] == ("interrupted", None, LEASE_ENDED)


def test_without_records_of_app_masters_the_history_comes_from_the_journal_alone(outage: Path) -> None:
    shutil.rmtree(outage / "apps")
    assert [(spell.state, spell.start, spell.end) for spell in PastRun(outage).history("a/0")] == [
        ("running", 0.0, 330.0)
    ]


def test_a_job_whose_workers_did_not_restart_is_interrupted_until_the_end() -> None:
    def line(at: float, event: str, why: str = "") -> Line:
        return Line(at=at, app="a", job="a/0", event=event, slots=(), step=0, incarnation=1, why=why)

    running = Spell(job="a/0", start=10.0, state="running")
    waiting = Spell(job="a/0", start=0.0, end=10.0, state="waiting")
    found = gaps([line(110.0, "start"), line(140.0, "failed", "its node was lost"), line(105.0, "suspended")])
    assert with_gaps([waiting, running], found, lambda unix: unix - 100.0) == [
        waiting,
        Spell(job="a/0", start=10.0, end=40.0, state="running"),
        Spell(job="a/0", start=40.0, state="interrupted", text="its node was lost"),
    ]
    assert gaps([line(1.0, "suspended"), line(2.0, "stopped")]) == []


def test_an_iteration_that_is_known_only_from_logs_is_marked_as_such() -> None:
    def said(number: int) -> pb.Explanation:
        return pb.Explanation(
            job=f"a/{number}", app="a", user="ana", state="running", slots=1, iterations_done=40.0, iterations=90.0
        )

    plain = pb.App(app="a", standing=pb.Standing(by_logs=True))
    for by_logs, app in ((True, plain), (False, pb.App(app="a"))):
        (head, *_) = explain.screen([said(1)], {"a": app})
        assert ("iteration 40 of 90, by its logs" in head) is by_logs
        assert any("LOGGED ITERATION" in line for line in explain.screen([said(1), said(2)], {"a": app})) is by_logs
        assert explain.facts(said(1), app)["by_logs"] is by_logs


def test_explaining_jobs_of_a_past_run_does_not_change_later_explanations(folder: Path) -> None:
    before = PastRun(folder)
    before.explanations("b")
    assert before.explanations("b") == PastRun(folder).explanations("b")


@pytest.mark.parametrize(("name", "at"), [("b/0", 1.0), ("a/0", 59.0)])
def test_a_job_that_was_not_in_the_run_at_the_given_time_is_refused(folder: Path, name: str, at: float | None) -> None:
    with pytest.raises(InputError, match=f"a job must have been in the run at {at:g} s"):
        PastRun(folder).explanations(name, at)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("b/7", 'no job is named "b/7"; b has: b/0, b/1'),
        ("nobody", 'no app is named "nobody"; there are: a, b'),
        ("B/1", 'no job is named "B/1"; there are the apps: a, b; did you mean "b/1"?'),
    ],
)
def test_an_unknown_job_is_refused_with_the_names_of_the_known_ones(folder: Path, name: str, said: str) -> None:
    for ask in (PastRun(folder).explanations, PastRun(folder).history):
        with pytest.raises(InputError) as refused:
            ask(name)
        assert str(refused.value) == f"{said} ({folder / 'journal.sqlite'})"


def test_a_failed_job_is_shown_with_its_last_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(tmp_path)
    writer.submit(0.0, "a", 3)
    failed = JobFailed(job=JobId("a/0"), why="exited with code 3: the data set is gone")
    decision = writer.arbiter.step(Seconds(9.0), [failed])
    note = Note(kind="app", key="a", value={"user": "ana", "failures": {"a/0": failed.why}})
    writer.journal.append(Seconds(9.0), [failed], decision, notes=[note])
    writer.journal.close()
    for name in ("a", "a/0"):
        assert run(["explain", name, "--run", str(tmp_path)]) == 0
        shown = capsys.readouterr().out.splitlines()
        log = tmp_path / "apps" / "a" / "0" / "stderr.log"
        assert shown[-3:] == ["a/0   FAILED    app a, user ana", f"           {failed.why}", f"Log        {log}"]


def test_ended_jobs_are_shown_with_their_last_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(tmp_path)
    writer.submit(0.0, "a", 3)
    writer.submit(5.0, "b", 2, jobs=2)
    writer.step(30.0, JobFinished(job=JobId("a/0")), AppFinished(app=AppId("a")))
    ended = [JobFinished(job=JobId("b/0")), JobFinished(job=JobId("b/1")), AppFinished(app=AppId("b"))]
    app = App(
        name="b", user="ana", weight=1.0, tuner="median_stopping", trials=2, least=2, most=2, max_iterations=100,
        submitted_at=5.0, arrived_at=5.0, request_id="1", node="box7", state="finished", ended_at=60.0,
    )  # fmt: skip
    note = Note(kind="app", key="b", value=dataclasses.asdict(app))
    decision = writer.arbiter.step(Seconds(60.0), ended)
    writer.journal.append(Seconds(60.0), ended, decision, notes=[note])
    writer.journal.close()
    (tmp_path / "apps" / "b").mkdir(parents=True)
    rows = ['b/0,"{""lr"": 0.1}",stopped,,7,,,1,0,', 'b/1,"{""lr"": 0.2}",finished,,100,,,3,0,']
    (tmp_path / "apps" / "b" / "trials.csv").write_text("\n".join([",".join(TRIALS_COLUMNS), *rows]))
    assert run(["explain", "b/0", "--run", str(tmp_path)]) == 0
    head, outcome, started, _, wait, *rest = capsys.readouterr().out.splitlines()
    assert head == "b/0   STOPPED by its tuner    app b, user ana"
    assert outcome == "Outcome    stopped by its tuner at iteration 7   lr 0.1"
    assert started == "Started    once"
    assert wait.startswith("Last wait, at 5 s: b/0   was WAITING")
    assert {line[:11].rstrip() for line in rest} <= {"Why", "", "Would free", "Forecast", "By then"}
    assert run(["explain", "b/1", "--run", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("b/1   FINISHED    app b")
    assert "\nStarted    3 times\n" in shown
    assert run(["explain", "b", "--run", str(tmp_path)]) == 0
    assert "\nLast waits, at 5 s: b   2 jobs were WAITING    app b" in capsys.readouterr().out
    assert run(["explain", "b/0", "--run", str(tmp_path), "--json"]) == 0
    end, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (end["state"], end["outcome"]["state"], end["outcome"]["starts"]) == ("finished", "stopped", 1)
    assert (end["seconds"], end["round"], end["last_wait_at_seconds"]) == (None, None, None)
    assert (last["state"], last["last_wait_at_seconds"]) == ("waiting", 5.0)
    assert run(["explain", "b/0", "--run", str(tmp_path), "--at", "6s"]) == 0
    assert capsys.readouterr().out.startswith("b/0   WAITING for 1 s"), "asked of a moment, it tells that moment"


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a journal must exist"):
        PastRun(tmp_path)


def test_the_command_explains_a_finished_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "b/0", "--run", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("b/0   WAITING for 7 s    app b, user ana    wants 2 slots")
    assert "Why        outranked, said by ordered (allocation)" in shown
    assert "Frees it   slots 0, 1, 2: a/0 done in 21 s     1 more free slot\nStarts     in 21 s\n" in shown
    assert run(["explain", "b/0", "--run", str(folder), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["schema"], made["reason"], made["plugin"]) == ("eunomia/explain@1", "outranked", "ordered")
    assert made["frees"][0]["what"] == "release"
    assert made["frees"][0]["in_seconds"] == pytest.approx(100.0 / 3.0 - 12.0)


def test_jobs_with_the_same_reason_are_printed_in_one_block(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "b", "--run", str(folder), "--at", "25s"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("b   2 jobs WAITING    app b, user ana")
    assert shown.count("Why") == 1
    assert [line.split()[0] for line in shown.splitlines()[-2:]] == ["b/0", "b/1"]


def test_the_command_prints_the_history_of_a_job(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "b/1", "--run", str(folder), "--history"]) == 0
    assert "paused_by_app" in capsys.readouterr().out
    assert run(["explain", "b/1", "--run", str(folder), "--history", "--json"]) == 0
    spells = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [spell["end_seconds"] for spell in spells] == [10.0, 12.0, 30.0, 60.0]


@pytest.mark.parametrize("wrong", [["b/9", "--run", "."], ["b/0", "--at", "3s"], ["b/0", "--run", ".", "--at", "soon"]])
def test_questions_that_cannot_be_answered_give_exit_code_2(
    folder: Path, wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert run(["explain", *wrong]) == 2
    assert re.search(r"must|no job is named", capsys.readouterr().err)
