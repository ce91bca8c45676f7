"""What the demo tells of a journal, held against the arbiter whose journal it is."""

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eunomia import Metric, Profile, hookimpl
from eunomia.arbiter import Arbiter
from eunomia.contract.codec import encode
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, ForecastReported, JobAdded
from eunomia.errors import InputError
from eunomia.journal.journal import Journal, Step, read_journal
from eunomia.model.cluster import Cluster
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.platform.registry import Registry
from eunomia.testing.drive import Delays, Drive
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_appmaster.explaining.activity import ActivityLog
from eunomia_appmaster.explaining.spells import Spells
from eunomia_testbed.demo.apps_of_demo import PRESET, app_sources, fitted, settings_for
from eunomia_testbed.demo.screen import end_lines
from eunomia_testbed.live_runs.activity import segments
from eunomia_testbed.live_runs.holds import Holds
from eunomia_testbed.live_runs.outcome import outcome_of
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.rounds import Rounds
from eunomia_testbed.live_runs.tables import Tables
from eunomia_testbed.live_runs.waits import waits_of
from eunomia_testbed.report import render
from eunomia_testbed.report.failures import failures
from eunomia_testbed.report.view import whole_of
from eunomia_testbed.results import ResultFolder, RunData, summarise

SLOTS = 4


class Watched(Arbiter):
    """An arbiter that keeps its steps as a journal would."""

    steps: list[Step]
    watch = staticmethod(lambda step: None)

    def step(self, now: Seconds, events: Iterable[Event] = ()) -> Decision:
        events = tuple(events)
        decision = super().step(now, events)
        self.steps.append(
            Step(number=len(self.steps) + 1, now=now, at=1000.0 + float(now), events=events, decision=decision)
        )
        self.watch(self.steps[-1])
        return decision


def watched(policy: str = "demo") -> Watched:
    cluster = Cluster.parse(f"1x{SLOTS} V100")
    profile = Profile.load(policy, settings={"rounds.bid_deadline": "none"})
    arbiter = Watched(cluster, profile.stages(cluster), Profile.fallback().stages(cluster), seed=1)
    arbiter.steps = []
    return arbiter


def script(apps: int, jobs: int, seconds: float) -> tuple[list[tuple[float, Event]], dict[JobId, float]]:
    made: list[tuple[float, Event]] = []
    work: dict[JobId, float] = {}
    for number in range(apps):
        app, at = AppId(f"app{number}"), 2.0 * number
        one = JobForecast(iterations_left=seconds, seconds_per_iteration=1.0, most=1 + number % 2)
        forecast = Forecast(phases=(Phase(jobs=(one,) * jobs),), total_gpu_seconds=seconds * jobs, most=2 * jobs)
        made.append((at, AppArrived(app=app, user=UserId("ana"))))
        for job in range(1, jobs + 1):
            name = JobId(f"{app}/{job}")
            made.append((at, JobAdded(job=name, app=app, most=1 + number % 2, iterations=seconds)))
            work[name] = seconds
        made.append((at, ForecastReported(app=app, forecast=forecast)))
    return made, work


@pytest.mark.parametrize("delays", [Delays(), Delays(order=0.2, start=0.5, release=1.5, lost=0.2)])
@pytest.mark.parametrize("policy", ["demo", "las"])
def test_holders_and_waiting_jobs_equal_those_of_the_arbiter_after_every_step(policy: str, delays: Delays) -> None:
    arbiter = watched(policy)
    holds, spells = Holds(SLOTS), Spells()

    def compare(step: Step) -> None:
        holds.take(step, arbiter.view)
        spells.take(arbiter.view, step.at)
        held = arbiter.state.holdings.live.lease[:SLOTS]
        now = {hold.gpu: hold.lease for hold in holds.holds if hold.end is None}
        assert now == {gpu: int(held[gpu]) for gpu in np.flatnonzero(held >= 0).tolist()}
        waiting = {str(arbiter.state.job_id(row)) for row in arbiter.state.waiting_jobs.rows}
        assert waiting <= {wait.job for wait in waits_of(spells.spells) if wait.end is None}

    arbiter.watch = compare  # type: ignore[method-assign]
    made, work = script(4, 3, 25.0)
    outcome = Drive(arbiter, work=work, delays=delays).run(made, until=5000.0)
    assert set(outcome.finished) == set(work)
    assert holds.busy == 0
    assert all(wait.end is not None for wait in waits_of(spells.spells))
    assert {hold.ended_by for hold in holds.holds} <= {"expired", "preempted", "released"}


def test_a_journal_is_read_the_same_way_without_its_policy_installed(tmp_path: Path) -> None:
    """A journal is read where its policy is not installed: the journal of ``run_folder`` names none."""
    folder = run_folder(tmp_path)
    with Journal.open(folder / "journal.sqlite", durable=False) as journal:
        assert "profile" not in journal.meta
    without = LiveRecord(folder)
    without.poll()
    with Journal.open(folder / "journal.sqlite", durable=False) as journal:
        journal.set_meta(profile=Profile.load("demo").resolved(), policy="demo", seed=1)
    named = LiveRecord(folder)
    named.poll()
    assert without.holds.holds == named.holds.holds != []
    assert without.spells.spells == named.spells.spells != []
    for record in (without, named):
        record.close()


def test_a_journal_that_contradicts_itself_is_refused_with_the_step(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "good")
    with read_journal(folder / "journal.sqlite") as journal:
        meta, steps = journal.meta, list(journal.steps())
    (tmp_path / "bad").mkdir()
    with Journal.open(tmp_path / "bad" / "journal.sqlite", durable=False) as journal:
        journal.set_meta(layout=meta["layout"])
        for step in steps[len(steps) // 2 :]:
            journal.append(step.now, step.events, step.decision, at=step.at)
    record = LiveRecord(tmp_path / "bad")
    with pytest.raises(InputError, match="a journal's steps must follow from each other"):
        record.poll()
    record.close()


def test_contested_auctions_are_counted_from_the_records() -> None:
    arbiter = watched()
    made, work = script(4, 3, 25.0)
    Drive(arbiter, work=work).run(made, until=5000.0)
    rounds = Rounds()
    for step in arbiter.steps:
        rounds.take(step, running=0, waiting=0, busy=0)
    records = [
        record
        for step in arbiter.steps
        for record in step.decision.records
        if record.table == "auction" and record.columns["app"]
    ]
    assert len(rounds.auctions) == len(records)
    contested = [
        record
        for record in records
        if sum(map(bool, record.columns["bid"])) >= 2
        and any(isinstance(kept, float) and kept < 1.0 for kept in record.columns["kept"])
    ]
    assert len(rounds.contested) == len(contested) >= 5


def run_folder(folder: Path) -> Path:
    """A folder as a live run leaves it, made of a virtual run: journal, activity, trials."""
    arbiter = watched()
    made, work = script(2, 2, 20.0)
    Drive(arbiter, work=work, delays=Delays(order=0.1, start=0.2, release=0.3)).run(made, until=500.0)
    with Journal.open(folder / "journal.sqlite", durable=False) as journal:
        places = tuple(("box", slot) for slot in range(SLOTS))
        journal.set_meta(layout=encode((arbiter.state.cluster.machines, places)))
        for step in arbiter.steps:
            journal.append(step.now, step.events, step.decision, at=step.at)
    for number in range(2):
        app = folder / "apps" / f"app{number}"
        app.mkdir(parents=True)
        (app / "app.toml").write_text(
            '[app]\nname = "x"\n[job]\ncommand = "python cnn.py"\n[tuner]\nmetric = "val/accuracy"\n'
        )
        lines = [
            {"t": "1970-01-01T00:16:41.000Z", "job": f"app{number}/1", "event": event, "slots": slots, "step": step,
             "incarnation": 1}
            for event, slots, step in (("start", [number], 0), ("running", [number], 0), ("suspended", [number], 7))
        ]  # fmt: skip
        for second, line in enumerate(lines):
            line["t"] = f"1970-01-01T00:16:{41 + second}.000Z"
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (app / "activity.jsonl").write_text(text + '{"t": "1970-01-01T00:16:5')  # its writer was killed
        columns = "job,parameters,state,rung,iterations,metric,best,incarnations,iterations_lost,why\n"
        (app / "trials.csv").write_text(f'{columns}app{number}/1,"{{""lr"": 0.5}}",finished,,20,0.9,0.95,1,0,\n')
    return folder


def test_tables_of_a_live_run_contain_its_apps_and_jobs(tmp_path: Path) -> None:
    record = LiveRecord(run_folder(tmp_path))
    record.poll()
    folder = ResultFolder(path=tmp_path)
    Tables(record).write(folder, policy="demo", seed=7)
    run = RunData.load(tmp_path)
    assert run.apps["state"].to_list() == ["finished", "finished"]
    assert all(0.2 < rho < 5.0 for rho in run.apps["rho"])
    assert run.jobs["job"].to_list() == ["app0", "app1"]  # the only one of its app
    assert run.jobs["model"].to_list() == ["cnn", "cnn"]
    assert run.segments.filter(activity="run")["slot"].to_list() == [0, 1]
    assert run.leases["end_seconds"].null_count() == 0
    assert run.records["themis"].height > 0
    assert run.rounds["suspended"].sum() == 2
    assert run.waits.height > 0
    done = outcome_of(record)
    assert (done.finished, done.suspensions, done.resumed, done.held_twice) == (2, 2, 0, ())
    record.close()


def test_a_live_run_has_the_metrics_of_plugins(tmp_path: Path) -> None:
    class Done:
        name, api = "done", 1

        @hookimpl
        def eunomia_metrics(self) -> Sequence[Metric]:
            return [
                Metric(name="trials_best", table="trials", unit="", meaning="best or not", compute=self.best),
                Metric(
                    name="busy_seconds", table="apps", unit="s", meaning="held", compute=self.busy, summary=("sum",)
                ),
                Metric(name="queued", table="queue", unit="jobs", meaning="a live run has no queue", compute=self.best),
            ]

        def best(self, tables: Mapping[str, Any]) -> Any:
            return tables["trials"]["best"].cast(float)

        def busy(self, tables: Mapping[str, Any]) -> Any:
            return tables["apps"]["slot_seconds"]

    registry = Registry.find(installed=False).adding(Done)
    record = LiveRecord(run_folder(tmp_path))
    record.poll()
    Tables(record, registry=registry).write(ResultFolder(path=tmp_path), policy="demo", seed=7)
    record.close()
    run = RunData.load(tmp_path)
    assert run.trials["trials_best"].to_list() == run.trials["best"].cast(float).to_list()
    assert run.apps["busy_seconds"].to_list() == run.apps["slot_seconds"].to_list()
    assert summarise(run)["busy_sum_seconds"].to_list() == pytest.approx([run.apps["slot_seconds"].sum()])


def test_a_metric_that_fails_removes_only_the_metrics_from_a_live_run(tmp_path: Path) -> None:
    class Wrong:
        name, api = "wrong", 1

        @hookimpl
        def eunomia_metrics(self) -> Sequence[Metric]:
            return [Metric(name="x", table="jobs", unit="", meaning="one value for all", compute=lambda tables: [1.0])]

    registry = Registry.find(installed=False).adding(Wrong)
    record = LiveRecord(run_folder(tmp_path))
    record.poll()
    Tables(record, registry=registry).write(ResultFolder(path=tmp_path), policy="demo", seed=7)
    record.close()
    run = RunData.load(tmp_path)
    assert run.jobs.height == 2
    assert "x" not in run.jobs.columns


def test_a_failed_trial_of_a_finished_app_is_printed_and_on_the_page(tmp_path: Path) -> None:
    trials = run_folder(tmp_path) / "apps" / "app1" / "trials.csv"
    with trials.open("a") as file:
        file.write('app1/2,"{""lr"": 0.9}",failed,,5,,,4,0,exited with code 1: ValueError: diverged <b>\n')
    record = LiveRecord(tmp_path)
    record.poll()
    done = outcome_of(record)
    lines = end_lines(done, "report.html")
    log = tmp_path / "apps" / "app1" / "2" / "stderr.log"
    said = f"app1: 1 of 2 trials failed: app1/2: exited with code 1: ValueError: diverged <b> (log {log})"
    assert lines[-3] == said
    assert " · 1 trial failed · " in lines[-2]
    assert [(app.state, app.failed) for app in done.apps] == [("finished", 0), ("finished", 1)]
    Tables(record).write(ResultFolder(path=tmp_path), policy="demo", seed=7)
    record.close()
    run = RunData.load(tmp_path)
    assert run.trials["error"].to_list() == [None, None, "exited with code 1: ValueError: diverged <b>"]
    (made,) = [failures(view) for view in whole_of(run).views]
    assert made is not None
    assert made.question == "app1: 1 of 2 trials failed"
    assert made.tables[0].rows == [["app1", "app1/2", "lr 0.9", 5, "exited with code 1: ValueError: diverged <b>"]]
    page = render(run)
    assert '"Failed trials, 1"' in page
    assert "<b>" not in page.partition("Failed trials, 1")[2].partition("</script>")[0]


def test_a_record_is_read_while_it_grows(tmp_path: Path) -> None:
    arbiter = watched()
    made, work = script(2, 2, 20.0)
    Drive(arbiter, work=work).run(made, until=500.0)
    record = LiveRecord(tmp_path)
    assert record.poll().steps == ()
    luck, read = random.Random(3), 0
    with Journal.open(tmp_path / "journal.sqlite", durable=False) as journal:
        places = tuple(("box", slot) for slot in range(arbiter.state.cluster.gpus))
        journal.set_meta(layout=encode((arbiter.state.cluster.machines, places)))
        for step in arbiter.steps:
            journal.append(step.now, step.events, step.decision, at=step.at)
            if luck.random() < 0.3:
                read += len(record.poll().steps)
        read += len(record.poll().steps)
    assert read == len(arbiter.steps)
    assert {app: life.state for app, life in record.apps.items()} == {"app0": "finished", "app1": "finished"}
    record.close()


def test_an_incomplete_line_of_activity_is_read_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "activity.jsonl"
    line = {"t": "2026-11-20T14:00:00.500Z", "job": "a/1", "event": "start", "slots": [2], "step": 5, "incarnation": 2}
    whole = json.dumps(line) + "\n"
    log = ActivityLog(tmp_path, "a")
    assert log.poll() == []
    path.write_text(whole + whole[:20])
    assert [(each.event, each.step) for each in log.poll()] == [("start", 5)]
    path.write_text(whole + whole)
    (second,) = log.poll()
    assert [each.activity for each in segments([second], second.at + 2.0)] == ["restore"]
    (tmp_path / "activity").mkdir()
    for name in ("a2-g1.jsonl", "a10-g1.jsonl", "a2-g1.jsonl.part"):
        (tmp_path / "activity" / name).write_text(whole.replace('"step": 5', f'"step": {name.count("0")}'))
    assert [each.step for each in log.poll()] == [0, 1], "a file for each attempt, in their order"


def test_apps_of_the_demo_accept_a_seed_and_settings() -> None:
    sources = app_sources(11)
    assert [source.path.stem for source in sources] == ["curves", "halving", "hyperband", "single"]
    assert all("seed = 11" in source.text for source in sources if source.path.stem != "single")
    smaller = sources[0].with_setting("max_iterations", 60)
    assert "max_iterations = 60\n" in smaller.text and "max_iterations = 300" not in smaller.text
    brackets = sources[2].with_setting("max_iterations", 40)
    assert "max_iterations = 40\n" in brackets.text and "min_iterations = 10\n" in brackets.text


def test_apps_of_the_demo_are_fitted_to_the_slots_of_the_machine() -> None:
    sources = app_sources()
    assert fitted(sources, slots=4, on_gpus=False) == sources
    alone = fitted(sources, slots=1, on_gpus=False)
    assert all("\nslots = 1\n" in source.text for source in alone)
    assert [source.max_iterations for source in fitted(sources, slots=2, on_gpus=True)] == [
        4 * source.max_iterations for source in sources
    ]


def test_on_one_slot_only_the_app_with_the_worst_rho_sees_each_offer() -> None:
    profile = Profile.load(PRESET, settings=settings_for(PRESET, slots=1))
    apps = len(app_sources())
    knob = profile.merged.tree["plugins"]["themis"]["fairness_knob"]
    assert max(1, math.ceil((1 - knob) * apps)) == 1
    assert settings_for(PRESET, slots=4) == settings_for("lottery", slots=1) == ()
