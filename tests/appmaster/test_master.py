import contextlib
import os
import signal
import time
from datetime import datetime
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.master.endings import LATE_SECONDS
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as launcher_pb

spec = util.spec_from_file_location("master_lab", Path(__file__).parent / "master_lab.py")
assert spec is not None
assert spec.loader is not None
labs: Any = util.module_from_spec(spec)
spec.loader.exec_module(labs)
eventually = labs.eventually

SINGLE = """
[app]
name = "ana"
[job]
command = "python tiny_worker.py {args} ARGS"
slots = { min = 1, max = 2 }
max_iterations = 300
retries = 1
[tuner]
kind = "none"
metric = "val/accuracy"
"""
SEARCH = """
[app]
name = "ana"
[job]
command = "python tiny_worker.py {args} ARGS"
slots = { min = 1, max = 2 }
max_iterations = 80
[space]
lr = { type = "categorical", choices = [0.1, 0.2, 0.3, 0.4] }
[tuner]
kind = "successive_halving"
metric = "val/accuracy"
trials = 4
sampler = "grid"
"""


def test_a_halving_search_pauses_and_promotes_its_trials_and_ends(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SEARCH.replace("ARGS", ""))
        lab.arbiter.grant("ana", 1, 0, 1, 2)
        eventually(lambda: lab.arbiter.finished, "the end")
        (end,) = lab.arbiter.finished
        assert end.final_application_status == pb.SUCCEEDED
        assert end.standing.best_job == "ana/3"
        assert not any(standing.by_logs for standing in lab.arbiter.reports("standing"))
        assert end.standing.best_params_json == '{"lr": 0.3}'
        rows = {row["job"]: row for row in lab.trials("ana")}
        assert {job: (row["state"], row["rung"], row["iterations"]) for job, row in rows.items()} == {
            "ana/1": ("stopped", "0", "20"),
            "ana/2": ("stopped", "1", "40"),
            "ana/3": ("finished", "2", "80"),
            "ana/4": ("stopped", "0", "20"),
        }
        assert float(rows["ana/3"]["metric"]) == pytest.approx(1 - 1 / 80)
        resumed = [(line["job"], line["step"]) for line in lab.activity("ana", "resumed")]
        assert sorted(resumed) == [("ana/2", 20), ("ana/3", 20), ("ana/3", 40)]
        assert {"ana/1", "ana/2"} <= set(lab.arbiter.reports("jobs_paused"))
        ended = set(lab.arbiter.reports("jobs_finished"))
        assert {"ana/1", "ana/2", "ana/4"} <= ended
        goals = {(each.job, each.iterations) for each in lab.arbiter.reports("jobs_resumed")}
        assert {("ana/2", 40.0), ("ana/3", 40.0), ("ana/3", 80.0)} <= goals
        assert lab.arbiter.reports("jobs_added")[0].iterations == 20.0
        sizes = [len(forecast.phases) for forecast in lab.arbiter.reports("forecast")]
        assert sizes[0] == 3
        assert sizes == sorted(sizes, reverse=True)


def test_a_trial_that_its_tuner_ends_is_stopped_and_not_suspended(tmp_path: Path) -> None:
    text = SEARCH.replace("ARGS", "--seconds 0.02").replace("[0.1, 0.2, 0.3, 0.4]", "[0.3, 0.31, 0.9]")
    text = text.replace('"successive_halving"', '"median_stopping"\nleast_trials = 2').replace(
        "trials = 4", "trials = 3"
    )
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", text)
        lab.arbiter.grant("ana", 1, 0)  # one after the other
        eventually(lambda: lab.arbiter.finished, "the end")
        rows = {row["job"]: row for row in lab.trials("ana")}
        assert [rows[f"ana/{n}"]["state"] for n in (1, 2, 3)] == ["finished", "finished", "stopped"]
        assert int(rows["ana/3"]["iterations"]) < 80
        assert not lab.activity("ana", "suspended")
        (stopped,) = lab.activity("ana", "stopped")
        assert (stopped["job"], stopped["slots"]) == ("ana/3", [0])


def test_a_job_is_suspended_when_its_slot_is_revoked_and_resumes_at_its_step(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SINGLE.replace("ARGS", "--lr 0.3"))
        lab.arbiter.grant("ana", 1, 0)
        eventually(lambda: any(each.iterations_done > 30 for each in lab.arbiter.reports("jobs_progress")), "progress")
        lab.arbiter.revoke("ana", 1, 0)
        eventually(lambda: lab.activity("ana", "suspended"), "suspension")
        lab.arbiter.free(0)
        assert not lab.arbiter.finished
        lab.arbiter.grant("ana", 2, 1, 2)
        eventually(lambda: lab.arbiter.finished, "the end")
        (suspended,) = lab.activity("ana", "suspended")
        (resumed,) = lab.activity("ana", "resumed")
        assert suspended["step"] == resumed["step"] > 30
        assert resumed["slots"] == [1, 2]
        divisions = [
            [(job.job, list(job.gpus)) for job in division.jobs] for division in lab.arbiter.reports("division")
        ]
        assert [("ana/1", [0])] in divisions
        assert [("ana/1", [1, 2])] in divisions
        (row,) = lab.trials("ana")
        assert (row["state"], row["iterations"], row["iterations_lost"], row["incarnations"]) == (
            "finished", "300", "0", "2",
        )  # fmt: skip


def test_progress_without_steps_from_the_helper_is_read_from_the_logs(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SINGLE.replace("ARGS", "--uncounted --seconds 0.02"))
        lab.arbiter.grant("ana", 1, 0)
        eventually(lambda: lab.arbiter.finished, "the end")
        done = [each.iterations_done for each in lab.arbiter.reports("jobs_progress")]
        assert len(set(done)) > 2
        assert done == sorted(done)
        (row,) = lab.trials("ana")
        assert (row["state"], row["iterations"]) == ("finished", "300")


def test_a_gang_that_loses_one_slot_restarts_on_the_remaining_slots(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SINGLE.replace("ARGS", "--seconds 0.02"))
        lab.arbiter.grant("ana", 1, 0, 1)
        eventually(lambda: lab.activity("ana", "running"), "start")
        lab.arbiter.revoke("ana", 1, 1)
        eventually(lambda: len(lab.activity("ana", "start")) == 2, "second start")
        assert [line["slots"] for line in lab.activity("ana", "start")] == [[0, 1], [0]]


def test_a_running_job_grows_if_this_saves_time(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SINGLE.replace("ARGS", "--seconds 0.1"))
        lab.arbiter.grant("ana", 1, 0)
        eventually(lambda: lab.activity("ana", "running"), "start")
        asked = lab.arbiter.reports("forecast")[-1]
        assert asked.phases[0].jobs[0].most == 2
        lab.arbiter.grant("ana", 2, 1)
        eventually(lambda: len(lab.activity("ana", "start")) == 2, "second start")
        first, second = lab.activity("ana", "start")
        assert (first["slots"], second["slots"]) == ([0], [0, 1])
        assert second["step"] >= lab.activity("ana", "suspended")[0]["step"] > 0
        assert not lab.arbiter.reports("release")


def test_a_lease_for_a_named_job_runs_that_job(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SEARCH.replace("ARGS", "--seconds 0.02"))
        lab.arbiter.grant("ana", 1, 1, 2, job="ana/3")
        eventually(lambda: lab.activity("ana", "running"), "start")
        (line,) = lab.activity("ana", "start")
        assert (line["job"], line["slots"]) == ("ana/3", [1, 2])
        assert not any(division.jobs for division in lab.arbiter.reports("division"))


def test_a_restarted_app_master_adopts_the_running_workers(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SEARCH.replace("ARGS", "--seconds 0.03"))
        lab.arbiter.grant("ana", 1, 0, 1)
        eventually(lambda: len(lab.activity("ana", "running")) == 2, "two trials")
        os.kill(eventually(lambda: lab.arbiter.masters["ana"].pid, "its pid"), signal.SIGKILL)
        eventually(lambda: len(lab.arbiter.registered) == 2, "second registration")
        assert (lab.arbiter.registered[1].attempt, lab.arbiter.registered[1].part) == (1, 2)
        eventually(lambda: lab.arbiter.finished, "the end")
        rows = {row["job"]: row for row in lab.trials("ana")}
        assert rows["ana/3"]["state"] == "finished"
        assert {row["iterations_lost"] for row in rows.values()} == {"0"}
        # No trial was started twice for it: one start for each rung that a trial ran to.
        starts = [line["job"] for line in lab.activity("ana", "start")]
        assert [starts.count(f"ana/{number}") for number in (1, 2, 3, 4)] == [1, 2, 3, 1]


@pytest.mark.slow  # an end is late after some seconds
def test_a_gang_that_ends_while_its_app_master_is_stopped_keeps_its_end_time(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path, slots=1) as lab:
        lab.submit("ana", SINGLE.replace("ARGS", "--seconds 0.05"))
        lab.arbiter.grant("ana", 1, 0)
        eventually(lambda: lab.activity("ana", "running"), "it runs")
        pid = eventually(lambda: lab.arbiter.masters["ana"].pid, "its pid")
        os.kill(pid, signal.SIGSTOP)
        try:
            before = time.time()
            lab.arbiter.order(
                revocations=[launcher_pb.Revocation(slot=0, epoch=lab.arbiter.epoch, deadline_seconds=2.0)]
            )
            lab.arbiter.free(0)
            after = time.time()
            time.sleep(LATE_SECONDS + 1.0)
        finally:
            os.kill(pid, signal.SIGCONT)
        (line,) = eventually(lambda: lab.activity("ana", "suspended"), "its end is noted")
        assert before <= datetime.fromisoformat(line["t"]).timestamp() <= after
        assert line["why"]


def test_a_full_disk_delays_starts_of_jobs_and_ends_no_app(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        app_dir = lab.submit("ana", SINGLE.replace("ARGS", "--seconds 0.01"))
        own = app_dir / "master" / "a1-g1"
        state, others = own / "master.json", (own / "trials.csv", app_dir / "activity" / "a1-g1.jsonl")
        changes = own / "master.changes.jsonl"
        eventually(changes.exists, "its state")
        for path in (state, changes, *others):  # a folder in the way refuses as a full disk does
            stand_in_the_way(path)
        lab.arbiter.grant("ana", 1, 0)
        eventually(lambda: "could not be written down" in lab.master_output("ana"), "a start that had to wait")
        assert not list(app_dir.glob("1/containers/*"))
        state.rmdir()
        changes.rmdir()
        eventually(lambda: list(app_dir.glob("1/containers/*")), "start")
        for path in others:
            path.rmdir()
        eventually(lambda: lab.arbiter.finished, "the end")
        assert [one.final_application_status for one in lab.arbiter.finished] == [pb.SUCCEEDED]
        assert len(lab.arbiter.registered) == 1  # it was never restarted
        assert {row["incarnations"] for row in lab.trials("ana")} == {"1"}


def stand_in_the_way(path: Path) -> None:
    """Put a folder where a file is written now and then."""
    while True:
        path.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return


def test_a_restarted_arbiter_gets_every_report_again(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SINGLE.replace("ARGS", "--seconds 0.01"))
        lab.arbiter.grant("ana", 1, 0)
        eventually(lambda: lab.activity("ana", "running"), "start")
        lab.arbiter.forget_app_masters()
        eventually(lambda: len(lab.arbiter.registered) == 2, "second registration")
        lab.arbiter.requests.clear()
        eventually(lambda: lab.arbiter.finished, "the end")
        assert [each.job for each in lab.arbiter.reports("jobs_added")] in (["ana/1"], [])
        assert len(lab.activity("ana", "start")) == 1


def test_a_failing_job_is_retried_from_its_checkpoint(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SINGLE.replace("ARGS", "--fail-at 40 --fail-once").replace("300", "60"))
        lab.arbiter.grant("ana", 1, 0)
        eventually(lambda: lab.arbiter.finished, "the end")
        assert lab.arbiter.finished[0].final_application_status == pb.SUCCEEDED
        (failed,) = lab.arbiter.reports("jobs_failed")
        assert failed.again_in_seconds == 1.0
        assert failed.why == "exited with code 3: giving up: the data set is gone"
        (row,) = lab.trials("ana")
        assert (row["state"], row["incarnations"]) == ("finished", "2")
        assert 0 < int(row["iterations_lost"]) <= 40


def test_an_app_whose_jobs_all_failed_fails_with_a_reason(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SINGLE.replace("ARGS", "--fail-at 5").replace("retries = 1", "retries = 0"))
        lab.arbiter.grant("ana", 1, 0)
        eventually(lambda: lab.arbiter.finished, "the end")
        (end,) = lab.arbiter.finished
        assert end.final_application_status == pb.FAILED
        assert end.diagnostics == "exited with code 3: giving up: the data set is gone"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            "--silent",
            'all 2 jobs failed; the last: metric "val/accuracy" was never logged by ana/2, which logged nothing',
        ),
        ("--nan", 'metric "val/accuracy" must be finite in some trial, but was so in none'),
    ],
)
def test_a_search_that_logs_no_metric_fails_with_that_reason(tmp_path: Path, option: str, said: str) -> None:
    text = SEARCH.replace("ARGS", option).replace("trials = 4", "trials = 2").replace("= 80", "= 20")
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", text)
        lab.arbiter.grant("ana", 1, 0, 1, 2)
        eventually(lambda: lab.arbiter.finished, "the end")
        (end,) = lab.arbiter.finished
        assert (end.final_application_status, end.diagnostics) == (pb.FAILED, said)


def test_the_error_for_a_metric_never_logged_lists_the_logged_ones(tmp_path: Path) -> None:
    text = SEARCH.replace("ARGS", "").replace("trials = 4", "trials = 2").replace("= 80", "= 20")
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", text.replace("val/accuracy", "val/acuracy"))
        lab.arbiter.grant("ana", 1, 0, 1, 2)
        eventually(lambda: lab.arbiter.finished, "the end")
        (end,) = lab.arbiter.finished
        whys = [(one.job, one.why.partition(", which ")[2]) for one in end.jobs_failed]
        logged = 'logged val/accuracy; did you mean "val/accuracy"?'
        assert whys == [("ana/1", logged), ("ana/2", logged)]
        assert end.diagnostics.endswith(f"was never logged by ana/2, which {logged}")


def test_a_script_without_the_helper_is_stopped_at_its_rung(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SEARCH.replace("ARGS", "--plain --seconds 0.02"))
        lab.arbiter.grant("ana", 1, 0, 1, 2)
        eventually(lambda: lab.arbiter.finished, "the end")
        assert lab.arbiter.finished[0].final_application_status == pb.SUCCEEDED
        rows = {row["job"]: row for row in lab.trials("ana")}
        assert rows["ana/3"]["state"] == "finished"
        assert 20 <= int(rows["ana/1"]["iterations"]) < 80


@pytest.mark.slow  # a script counts as one without the helper once it has run for some seconds
def test_steps_of_a_script_without_the_helper_are_marked_as_read_from_logs(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SEARCH.replace("ARGS", "--plain --seconds 0.2"))
        lab.arbiter.grant("ana", 1, 0, 1, 2)
        eventually(lambda: lab.arbiter.finished, "the end")
        assert any(standing.by_logs for standing in lab.arbiter.reports("standing"))


def test_slots_that_the_app_cannot_use_are_released(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", SINGLE.replace("max = 2", "max = 1").replace("ARGS", "--seconds 0.05"))
        lab.arbiter.grant("ana", 1, 0, 2)
        (release,) = eventually(lambda: lab.arbiter.reports("release"), "a release")
        assert (release.lease, release.epoch, list(release.gpus)) == (1, 101, [2])
