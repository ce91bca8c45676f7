import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster.state_records import write_whole

from eunomia.errors import EunomiaError
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.units import Locality
from eunomia_appmaster.app.submission import SUBMISSION, Submission
from eunomia_appmaster.master.endings import LATE_SECONDS, GangOutcome, judge, time_of_end
from eunomia_appmaster.master.files import (
    ActivityLog,
    Growth,
    KeptState,
    StateError,
    TrialsFile,
    read_state,
)
from eunomia_appmaster.master.job_index import JobIndex
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.outbox import Life, Outbox, Progress, RateReport
from eunomia_appmaster.master.reporting import differs
from eunomia_appmaster.master.slots import HeldLease, Slot, SlotBook
from eunomia_appmaster.master.unfit_leases import surplus, words
from eunomia_appmaster.node.kept_files import opened
from eunomia_appmaster.runtimes.runtime import ContainerState, ContainerStatus, Exit

# -- endings


def gone(code: int | None = None, *, signal: int | None = None, **more: Any) -> ContainerStatus:
    fields: dict[str, Any] = {
        "container_id": "a.1.1.0", "job": 1, "incarnation": 1, "slot": 0, "epoch": 1, "rank": 0, "pid": 9,
        "state": ContainerState.COMPLETED, "exit": Exit(code=code, signal=signal), "started_at": 1.0, "ended_at": 2.0,
        "step": None, "seconds_per_step": None, "saved_step": None, "suspended_step": None, "announced": {},
        "hello": True, "forked": False, "killed": False, "stop_reason": "", "diagnostics": "", "version": 1,
    }  # fmt: skip
    return ContainerStatus(**(fields | more))


@pytest.mark.parametrize(
    ("statuses", "order", "step", "outcome"),
    [
        ([gone(0)], "", 10, GangOutcome.FINISHED),
        ([gone(0)], "paused", 10, GangOutcome.FINISHED),
        ([gone(0, hello=False)], "paused", 10, GangOutcome.SUSPENDED),
        ([gone(75)], "", 96, GangOutcome.AT_RUNG),
        ([gone(75)], "its lease was revoked", 96, GangOutcome.AT_RUNG),
        ([gone(75)], "its lease was revoked", 95, GangOutcome.SUSPENDED),
        ([gone(75, stop_reason="the lease ended")], "", 10, GangOutcome.SUSPENDED),
        ([gone(75)], "", 10, GangOutcome.ODD),
        ([gone(1)], "", 10, GangOutcome.FAILED),
        ([gone(1, stop_reason="the lease ended")], "", 10, GangOutcome.SUSPENDED),
        ([gone(75, suspended_step=10)], "", 10, GangOutcome.INTERRUPTED),
        ([gone(signal=9)], "", 96, GangOutcome.INTERRUPTED),
        ([gone(signal=15, hello=False)], "", 96, GangOutcome.INTERRUPTED),
        ([gone(signal=9, out_of_memory=True)], "", 96, GangOutcome.FAILED),
        ([gone(signal=11)], "", 96, GangOutcome.FAILED),
        ([gone(1, ended_at=5.0), gone(signal=9, ended_at=4.0)], "", 96, GangOutcome.INTERRUPTED),
        ([gone(1, ended_at=4.0), gone(signal=9, ended_at=5.0)], "", 96, GangOutcome.FAILED),
        ([gone(signal=9, killed=True, stop_reason="the lease ended")], "", 96, GangOutcome.SUSPENDED),
        ([gone()], "", 10, GangOutcome.LOST),
        ([gone(75, stop_reason="x"), gone(1)], "another worker of its gang has failed", 10, GangOutcome.FAILED),
        ([gone(75), gone(0)], "", 96, GangOutcome.AT_RUNG),
        ([gone(1, misuse="no group")], "", 10, GangOutcome.MISUSED),
        ([gone(75, stop_reason="x"), gone(1, misuse="no group")], "it failed", 10, GangOutcome.MISUSED),
        ([gone(1, ended_at=1.0), gone(1, misuse="no group", ended_at=2.0)], "", 10, GangOutcome.MISUSED),
        ([gone(75, misuse="no group", stop_reason="x")], "it is over", 10, GangOutcome.SUSPENDED),
    ],
)
def test_the_outcome_of_a_gang_follows_from_how_its_workers_ended(
    statuses: list[ContainerStatus], order: str, step: int, outcome: GangOutcome
) -> None:
    assert judge(statuses, order=order, stop_at=96, step=step).outcome is outcome


def test_interruptions_of_a_job_are_counted_within_a_time_window() -> None:
    job = Job(number=1, parameters={}, seed=0)
    assert [job.interrupt(now) for now in (0.0, 10.0, 20.0, 599.0, 610.1, 2000.0)] == [1, 2, 3, 4, 3, 1]
    job.interruptions = [5000.0]  # the machine's clock was set back since
    assert job.interrupt(100.0) == 1
    assert Job.from_json(job.to_json()).interruptions == [100.0]


def test_a_failure_names_the_worker_that_failed_first() -> None:
    statuses = [gone(1, ended_at=5.0), gone(signal=11, rank=1, ended_at=4.0, diagnostics="segfault")]
    assert judge(statuses, order="", stop_at=None, step=0).why == "worker 1 was ended by signal 11 (segfault)"


def test_the_end_of_a_gang_is_recorded_with_its_order_and_its_own_time() -> None:
    by_node = [gone(75, stop_reason="the node's lease ends"), gone(75, rank=1, ended_at=4.0)]
    assert judge(by_node, order="", stop_at=None, step=0).why == "the node's lease ends"
    assert judge(by_node, order="its tuner paused it", stop_at=None, step=0).why == "its tuner paused it"
    assert time_of_end(by_node, 4.0 + LATE_SECONDS) == 4.0 + LATE_SECONDS
    assert time_of_end(by_node, 300.0) == 4.0
    assert time_of_end([gone(ended_at=None)], 300.0) == 300.0


# -- slots


def lease(number: int, epoch: int, *gpus: int, ends_at: float | None = None, job: int | None = None) -> HeldLease:
    slots = {
        gpu: Slot(gpu=gpu, node="n", slot=gpu, gpu_type="cpu", lease=number, epoch=epoch, token="", job=job)
        for gpu in gpus
    }
    return HeldLease(id=number, epoch=epoch, job=job, slots=slots, ends_at=ends_at)


def test_only_a_newer_order_about_a_lease_is_applied() -> None:
    book = SlotBook()
    book.grant(lease(1, 5, 0, 1, 2))
    book.lose([2], 6)
    assert sorted(book.slots()) == [0, 1]
    book.grant(lease(1, 6, 0, 1))
    book.grant(lease(1, 5, 0, 1, 2))
    assert sorted(book.slots()) == [0, 1]
    book.grant(lease(2, 9, 2, ends_at=30.0))
    assert sorted(book.slots()) == [0, 1, 2]
    book.end(1)
    assert sorted(book.slots()) == [2]
    book.replace_all([lease(3, 10, 7)])
    assert sorted(book.slots()) == [7]


def test_slots_whose_lease_ends_soon_are_told_apart_on_the_clock_of_the_app_master() -> None:
    book = SlotBook()
    book.clock_ahead = 1000.0
    book.grant(lease(1, 5, 0))
    book.grant(lease(2, 6, 1, 2, ends_at=30.0))
    assert book.lasting([2, 1, 0], 1029.0) == (2, 1, 0)
    assert book.lasting([2, 1, 0], 1030.0) == (0,)
    book.renew(2, 60.0)
    book.lose([1], 6)
    assert book.lasting([2, 1, 0], 1030.0) == (2, 0)
    assert book.lasting([7], 0.0) == ()


@pytest.mark.parametrize(
    ("gpus", "members", "busy", "back"),
    [
        ((0, 1), (), (), ()),
        ((0, 1, 2), (0, 1), (0, 1), ()),
        ((0, 1, 2, 3, 4), (), (), (3, 4)),
        ((0, 1, 2, 3, 4), (3, 4), (0, 3, 4), (1, 2)),  # the members stay, and no process loses its slot
        ((0, 1, 2, 3, 4), (0, 1), (0, 1, 2, 3), (4,)),
        ((7,), (), (), (7,)),
        ((7,), (7,), (7,), ()),  # once its worker has left
        ((), (), (), ()),
    ],
)
def test_what_is_too_much_of_a_lease_of_a_size_that_its_job_cannot_have_is_given_back(
    gpus: tuple[int, ...], members: tuple[int, ...], busy: tuple[int, ...], back: tuple[int, ...]
) -> None:
    book = SlotBook()
    book.grant(lease(4, 9, *gpus, job=1))
    (held,) = book
    asked: dict[str, Any] = {"members": members, "busy": busy, "least": 2, "most": 3}
    assert surplus(held, book.slots(), **asked) == back
    book.lose(back, 9)
    assert surplus(held, book.slots(), **asked) == ()
    assert words(held, "live/1", 2, 3) == f"a lease of live/1 must have 2 to 3 slots, but got {len(gpus)} (lease 4)"


# -- outbox


def test_the_newest_report_of_each_kind_is_sent_and_lost_reports_are_repeated() -> None:
    outbox = Outbox()
    outbox.put("division", {"a/1": (0,)})
    outbox.put("lives", Life(what="paused"), key="a/1")
    sending = outbox.take()
    assert sending.reports().division == {"a/1": (0,)}
    assert not outbox.take().items
    outbox.put("lives", Life(what="resumed", iterations=40.0), key="a/1")
    outbox.give_back(sending)
    again = outbox.take().reports()
    assert again.division == {"a/1": (0,)}
    assert again.lives == {"a/1": Life(what="resumed", iterations=40.0)}


def test_a_job_is_added_before_any_report_on_it() -> None:
    outbox = Outbox()
    outbox.put("division", {"a/1": (0,)})
    outbox.put("added", "a job", key="a/1")
    first = outbox.take().reports()
    assert first.added == {"a/1": "a job"}
    assert first.division is None
    woken = threading.Event()
    outbox.listen(woken)
    assert woken.is_set()
    assert outbox.take().reports().division == {"a/1": (0,)}


def test_no_further_report_is_sent_on_a_job_that_has_ended() -> None:
    outbox = Outbox()
    rate = RateReport(job="a/1", gpus=1, locality=Locality.ISLAND, gpu_type="cpu", rate=2.0)
    for job in ("a/1", "a/2"):
        outbox.put("progress", Progress(iterations_done=1.0, rate=0.0), key=job)
    outbox.put("rates", rate, key=1)
    outbox.put("lives", Life(what="finished"), key="a/1")
    outbox.put("lives", Life(what="failed", again_in=1.0), key="a/2")
    sent = outbox.take().reports()
    assert (set(sent.progress), sent.rates, set(sent.lives)) == ({"a/2"}, [], {"a/1", "a/2"})


def test_progress_waits_for_a_heartbeat_but_a_release_is_sent_at_once() -> None:
    outbox, woken = Outbox(), threading.Event()
    outbox.listen(woken)
    outbox.put("progress", 1, key="a/1", urgent=False)
    assert not woken.is_set()
    outbox.put("releases", 1, key=1)
    assert woken.is_set()


# -- files


def test_the_state_of_an_app_master_is_restored_from_its_file_including_nan(tmp_path: Path) -> None:
    path = tmp_path / "master.json"
    assert read_state(path) is None
    gang = Gang(incarnation=2, gpus=(0, 3), containers=("a.1.2.0", "a.1.2.1"), stop_at=96, began_at=1.5, from_step=40)
    job = Job(number=1, parameters={"lr": 0.1}, seed=3, state=JobState.STOPPING, gang=gang, metric=math.nan, best=0.5)
    job.sizes[2] = (2, 0)
    growth = Growth(groups=(8,), before={1: 40})
    write_whole(path, KeptState({"phase": 1}, [job], growth, ("a/1: lost",)))
    kept = read_state(path)
    assert kept is not None
    tuner, (again,), grown, notices, _ = kept
    assert notices == ("a/1: lost",)
    assert grown == growth
    assert grown.grown((8,), [again]) == growth
    assert grown.grown((8, 4), [again]) == Growth(groups=(8, 4), before={1: again.step})
    assert grown.grown((4,), [again]) == growth, "a journal of an older backup"
    assert tuner == {"phase": 1}
    assert again.gang == gang
    assert math.isnan(again.metric or 0.0)
    assert (again.state, again.sizes, again.parameters) == (JobState.STOPPING, {2: (2, 0)}, {"lr": 0.1})
    for each in (path, path.with_name("master.json.old")):
        each.write_text("{")
    with pytest.raises(StateError, match="must be readable") as damaged:
        read_state(path)
    assert str(damaged.value).count("but got") == str(damaged.value).count(str(path)) == 1


def test_files_of_trials_and_activity_are_valid_csv_and_json_lines(tmp_path: Path) -> None:
    job = Job(
        number=2, parameters={"lr": 0.1, "note": 'a,"b"'}, seed=3, state=JobState.FAILED, why="line\nbreak", step=7
    )
    TrialsFile(tmp_path / "trials.csv", "ana", JobIndex([job])).write()
    import csv

    with (tmp_path / "trials.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["job"], row["state"], row["iterations"], row["metric"]) == ("ana/2", "failed", "7", "")
    assert json.loads(row["parameters"]) == {"lr": 0.1, "note": 'a,"b"'}
    ActivityLog(tmp_path / "activity.jsonl", "ana").note("suspended", job, 1.5, slots=(3,), step=5)
    assert opened((tmp_path / "activity.jsonl").read_text())[0] == {
        "t": "1970-01-01T00:00:01.500Z", "job": "ana/2", "event": "suspended", "slots": [3], "step": 5,
        "incarnation": 0,
    }  # fmt: skip


def test_a_submission_is_read_back_and_an_invalid_one_is_refused_by_name(tmp_path: Path) -> None:
    made = Submission(file_name="a.toml", folder=Path("/w"), user="ana", env={"HOME": "/h"}, app_file="[app]\n")
    made.write(tmp_path)
    assert Submission.read(tmp_path) == made
    for name in (SUBMISSION, f"{SUBMISSION}.old"):
        (tmp_path / name).write_text("[]")
    with pytest.raises(EunomiaError, match="restore it from a backup, or submit the app's file again"):
        Submission.read(tmp_path)


# -- forecasts


def forecast(left: float, *, jobs: int = 2, most: int = 1) -> Forecast:
    one = JobForecast(iterations_left=left, seconds_per_iteration=1.0, most=most)
    return Forecast(phases=(Phase(jobs=(one,) * jobs),), total_gpu_seconds=1000.0, most=most * jobs)


def test_a_forecast_is_reported_only_if_it_differs_from_the_last_one() -> None:
    assert differs(forecast(100.0), None)
    assert not differs(forecast(99.0), forecast(100.0))
    assert differs(forecast(90.0), forecast(100.0))
    assert differs(forecast(100.0, jobs=1), forecast(100.0))
    assert differs(forecast(100.0, most=2), forecast(100.0))
    assert differs(forecast(0.0), forecast(1.0))
