"""A script announces batch sizes: each reaches the arbiter once, in order, with the step at which it was made."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from eunomia.units import JobId
from eunomia_appmaster.launcher.container import MOST_ANNOUNCED, MOST_ANNOUNCEMENTS, Container
from eunomia_appmaster.master.announcements import Announcements
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.master.outbox import AdaptationReport, Life, Outbox
from eunomia_appmaster.master.wire import request_of
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.runtimes.local import status_of
from eunomia_appmaster.service import bounds

NAME = JobId("ana/1")


def container(folder: Path) -> Container:
    return Container(pb.ContainerStatus(container_id="c", app="ana", job=1, state=pb.RUNNING), folder)


def announces(worker: Container, batch_size: Any, step: int) -> None:
    worker.heard("progress", {"step": step})
    worker.heard("announce", {"batch_size": batch_size})


def heard(ears: Announcements, worker: Container, job: Job) -> list[tuple[float, float | None]]:
    status = pb.ContainerStatus.FromString(worker.status.SerializeToString())
    bounds.check(pb.NodeHeartbeatRequest(node="box7", containers=[status]))
    return [(one.batch_size, one.iterations_done) for _, one in ears.hear(job, NAME, status_of(status))]


def test_two_announcements_between_two_polls_are_each_read_once(tmp_path: Path) -> None:
    worker, job, ears = container(tmp_path), Job(number=1, parameters={}, seed=0), Announcements()
    announces(worker, 64, 100)
    announces(worker, 128, 130)
    assert heard(ears, worker, job) == [(64.0, 100.0), (128.0, 130.0)]
    assert heard(ears, worker, job) == []
    assert job.batch_size == 128.0
    assert job.adapted_at is not None
    announces(worker, 32, 131)
    assert heard(ears, worker, job) == [(32.0, 131.0)]
    assert Job.from_json(json.loads(json.dumps(job.to_json()))).batch_size == 32.0


def test_a_restarted_app_master_reads_the_announcements_again(tmp_path: Path) -> None:
    worker, job = container(tmp_path), Job(number=1, parameters={}, seed=0)
    announces(worker, 64, 100)
    assert heard(Announcements(), worker, job) == heard(Announcements(), worker, job) == [(64.0, 100.0)]


def test_an_announcement_of_a_script_without_progress_has_no_step(tmp_path: Path) -> None:
    worker, job = container(tmp_path), Job(number=1, parameters={}, seed=0)
    worker.heard("announce", {"batch_size": 64})
    assert heard(Announcements(), worker, job) == [(64.0, None)]


@pytest.mark.parametrize("wrong", [0, -8, math.nan, math.inf, 1e16, True, "64", None])
def test_an_invalid_batch_size_is_ignored(tmp_path: Path, wrong: object) -> None:
    worker, job, ears = container(tmp_path), Job(number=1, parameters={}, seed=0), Announcements()
    announces(worker, wrong, 5)
    worker.heard("announce", {"point": 3})
    announces(worker, 64, 6)
    assert heard(ears, worker, job) == [(64.0, 6.0)]


def test_a_status_has_the_last_announcements_up_to_a_limit_of_number_and_length(tmp_path: Path) -> None:
    worker, job, ears = container(tmp_path), Job(number=1, parameters={}, seed=0), Announcements()
    for step in range(MOST_ANNOUNCEMENTS + 5):
        announces(worker, step + 1, step)
    assert heard(ears, worker, job)[0] == (6.0, 5.0)
    for _ in range(3):
        worker.heard("announce", {"note": "x" * (MOST_ANNOUNCED // 2)})
    assert sum(len(one.regime_json) for one in worker.status.announcements) <= MOST_ANNOUNCED
    assert [one.number for one in worker.status.announcements] == [MOST_ANNOUNCEMENTS + 8]


def report(number: int, job: str = NAME) -> AdaptationReport:
    return AdaptationReport(job=job, batch_size=float(number), iterations_done=float(number), at=0.0)


def test_pending_adaptations_survive_a_new_registration_and_keep_their_order() -> None:
    outbox = Outbox()
    for number in range(1, 4):
        outbox.put("adapted", report(number), key=("c", number))
    sending = outbox.take()
    outbox.put("adapted", report(4), key=("c", 4))
    outbox.give_back(sending)  # it did not arrive
    outbox.clear()
    assert [one.batch_size for one in outbox.take().reports().adapted] == [1.0, 2.0, 3.0, 4.0]


def test_a_request_that_ends_a_job_has_no_adaptation_of_that_job() -> None:
    outbox = Outbox()
    outbox.put("adapted", report(1), key=("c", 1))
    outbox.put("adapted", report(2, "ana/2"), key=("d", 1))
    outbox.put("lives", Life(what="finished"), key=NAME)
    request = request_of("ana", 1, 0, outbox.take().reports(), now=7.0)
    assert [(one.job, one.seconds_ago) for one in request.adaptations] == [("ana/2", 7.0)]
