"""A worker that hangs is not shown, nor valued, as going on: reports stand for three report intervals at most."""

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.commands.explain import lines
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.pace import FIRST_LOG_SECONDS, Pace
from eunomia_appmaster.protocol import arbiter_pb2 as pb

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually = lab_module.eventually
HEARTBEAT = 0.2
"""Of the lab's arbiter, in seconds."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path) as made:
        yield made.ready()


def running_job(*, helper: bool = True) -> Job:
    made = Job(number=1, parameters={}, seed=0, state=JobState.RUNNING, incarnation=1, step=17, has_helper=helper)
    made.gang = Gang(gpus=(0,), containers=("c",), incarnation=1, began_at=0.0, from_step=0, stop_at=None, running=True)
    return made


def test_a_rate_expires_after_three_report_intervals_without_progress() -> None:
    pace, made = Pace(), running_job()
    assert pace.rate(made, 10.0, 100.0) == 10.0
    assert pace.rate(made, 10.0, 103.0) == 10.0
    assert pace.rate(made, 10.0, 103.1) == 0.0
    made.step = 18
    assert pace.rate(made, 10.0, 200.0) == 10.0


def test_a_new_checkpoint_or_log_counts_as_progress_even_without_a_step() -> None:
    pace, made = Pace(), running_job()
    assert pace.rate(made, 10.0, 100.0) == 10.0
    made.signs += 1
    assert [pace.rate(made, 10.0, at) for at in (200.0, 203.0, 203.1)] == [10.0, 10.0, 0.0]


def test_with_slow_steps_a_rate_expires_after_three_step_times() -> None:
    pace, made = Pace(), running_job()
    assert [pace.rate(made, 0.05, at) for at in (0.0, 59.0, 61.0)] == [0.05, 0.05, 0.0]


def test_without_the_helper_a_rate_expires_after_three_intervals_of_the_logs() -> None:
    pace, made = Pace(), running_job(helper=False)
    assert pace.rate(made, 10.0, 0.0) == 10.0
    assert pace.rate(made, 10.0, 3 * FIRST_LOG_SECONDS - 1.0) == 10.0
    made.step = 500
    assert pace.rate(made, 10.0, 400.0) == 10.0
    made.step = 600
    assert [pace.rate(made, 10.0, at) for at in (410.0, 439.0, 441.0)] == [10.0, 10.0, 0.0]


def running(lab: Any) -> Any:
    master = lab.master("ana")
    master.register()
    added = pb.JobAdded(job="ana/1", least=2, most=2, iterations=1e6)
    master.beat_until(lambda: master.leases, jobs_added=[added])
    master.beat()
    return master


def explained(lab: Any) -> str:
    (found,) = lab.client().Explain(pb.ExplainRequest(job="ana/1"), metadata=lab.operator).explanations
    return lines(found, None)[0]


def test_screens_show_the_time_of_the_last_report(lab: Any) -> None:
    master = running(lab)
    master.beat(jobs_progress=[pb.JobProgress(job="ana/1", iterations_done=17, rate=0.0)])
    eventually(lambda: lab.seen().slots[0].iterations_done == 17.0)
    eventually(lambda: lab.seen().slots[0].HasField("reported_seconds_ago"))
    assert "iteration 17 of 1000000, last report " in explained(lab)


def test_jobs_of_a_silent_app_master_are_shown_as_last_reported(lab: Any) -> None:
    master = running(lab)
    master.beat(jobs_progress=[pb.JobProgress(job="ana/1", iterations_done=17, rate=1000.0)])
    eventually(lambda: lab.seen().slots[0].iterations_done >= 17.0)
    time.sleep(8 * HEARTBEAT)  # three heartbeats are the bound, from a call that took one at most
    first, said = lab.seen().slots[0], explained(lab)
    time.sleep(2 * HEARTBEAT)
    assert first.HasField("reported_seconds_ago")
    assert ", last report " in said
    assert lab.seen().slots[0].iterations_done == pytest.approx(first.iterations_done)
