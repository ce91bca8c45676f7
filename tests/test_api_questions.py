"""The lines with which the page of public names answers the questions of authors say what they promise."""

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest

import eunomia
from documents.questions import QUESTIONS
from eunomia import Allocation, GpuState, JobState, Reason, Seconds, Stage
from eunomia.model.ledger import Ledger
from eunomia.platform.registry import default_registry
from eunomia.testing.builders import World

LINES = [question.line for questions in QUESTIONS.values() for question in questions]


@dataclasses.dataclass(frozen=True)
class Credit:
    """A memo."""

    version: ClassVar[int] = 1
    given: int = 3

    def to_bytes(self) -> bytes:
        return bytes([self.given])

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> "Credit":
        return cls(data[0])


class Mine:
    name = "mine"


MEMO = Credit()


def scene() -> dict[str, Any]:
    """Two machines of V100 and one of K80: ``wide`` holds three GPUs, ``small`` waits, ``rest`` is paused."""
    town = (
        World("2x4 V100, 1x2 K80", seed=5)
        .app("wide", user="ana", weight=2.0)
        .job(
            "wide/0",
            gpus=(1, 4),
            state=JobState.RUNNING,
            iterations=500.0,
            seconds_per_iteration=2.0,
            received=(600.0, 30.0),
            done=100.0,
            since=40.0,
            rate=2.0,
        )
        .holds("wide/0", 3, 4, 5, ends_at=600.0, protected_until=30.0)
        .job("small/0", gpus=2, iterations=60.0, seconds_per_iteration=1.0, arrived=10.0)
        .job("rest/0", state=JobState.PAUSED)
        .down(7)
        .remembers("mine", Stage.ALLOCATION, MEMO)
    )
    snapshot, offer = town.snapshot(50.0), town.offer(50.0)
    rows = np.arange(snapshot.jobs.id.size)
    ledger = Ledger(
        jobs=dataclasses.replace(snapshot.ledger.jobs, attained=300.0 + rows, waited=20.0 + rows),
        apps=dataclasses.replace(snapshot.ledger.apps, gpu_seconds=900.0 + np.arange(snapshot.apps.id.size)),
    )
    snapshot = dataclasses.replace(snapshot, ledger=ledger)
    elasticity = default_registry().make("range", {}, alias="range", place=lambda path: "range")
    menus = elasticity.eunomia_elasticity(snapshot)
    jobs = np.array([town.row("wide/0"), town.row("small/0")], dtype=np.int32)
    names = {name: getattr(eunomia, name) for name in eunomia.__all__}
    return names | {
        "np": np,
        "dataclasses": dataclasses,
        "self": Mine(),
        "snapshot": snapshot,
        "offer": offer,
        "menus": menus,
        "job": int(jobs[0]),
        "jobs": jobs,
        "app": int(snapshot.jobs.app[jobs[0]]),
        "gpu": 4,
        "sizes": np.array([3, 0]),
        "allocation": Allocation.to_jobs(jobs, np.array([3, 0]), otherwise=Reason.OUTRANKED),
    }


EXPECTED: dict[str, object] = {
    "snapshot.active": [0, 1],
    "snapshot.active[snapshot.jobs.state[snapshot.active] == JobState.WAITING]": [1],
    "offer.candidates": [1],
    "snapshot.jobs.id[job]": "wide/0",
    'int(np.flatnonzero(snapshot.jobs.id == "wide/0")[0])': 0,
    "snapshot.apps.id[snapshot.jobs.app[job]]": "wide",
    "snapshot.users.weight[snapshot.apps.user[app]]": 1.0,
    "snapshot.now": 50.0,
    "offer.free_gpus": 6,
    "np.bincount(snapshot.cluster.gpu_type[offer.gpus], minlength=len(snapshot.cluster.gpu_types))": [2, 4],
    "np.bincount(snapshot.cluster.machine[offer.gpus], minlength=len(snapshot.cluster.machines))": [3, 1, 2],
    "int(np.count_nonzero(snapshot.holdings.job == job))": 3,
    "np.flatnonzero(snapshot.holdings.job == job)": [3, 4, 5],
    "np.unique(snapshot.cluster.machine[np.flatnonzero(snapshot.holdings.job == job)])": [0, 1],
    "int(snapshot.holdings.job[gpu])": 0,
    "snapshot.cluster.gpu_types[snapshot.cluster.gpu_type[gpu]]": "V100",
    "float(snapshot.holdings.ends_at[gpu])": 600.0,
    "bool(snapshot.holdings.protected_until[gpu] <= snapshot.now)": True,
    "snapshot.index.waiting": {1},
    "snapshot.index.free.free": [2, 4],
    "snapshot.index.free.best(0, 2)": 2,
    "snapshot.index.gpus_of(job)": [3, 4, 5],
    "next(snapshot.index.queue(lambda facts, job: Linear(facts.jobs.most[job]), menus, running=False).in_order())": 1,
    "menus.sizes(job)": [1, 2, 3, 4],
    "menus.largest_at_most(job, offer.free_gpus)": 4,
    "menus.rate(job, 2)": 1.0,
    "snapshot.iterations_left(jobs)": [380.0, 60.0],
    "snapshot.iterations_left(jobs) / menus.full_rate(jobs)": [190.0, 30.0],
    "snapshot.ledger.jobs.received[job]": [600.0, 30.0],
    "float(snapshot.ledger.jobs.attained[job])": 300.0,
    "float(snapshot.ledger.jobs.waited[job])": 20.0,
    "float(snapshot.ledger.apps.gpu_seconds[app])": 900.0,
}
"""By line, its value in the scene; arrays as lists."""


def test_every_line_of_the_page_has_an_expected_answer() -> None:
    assert len(LINES) == len(set(LINES))
    assert set(EXPECTED) | set(RETURNED) == set(LINES)


@pytest.mark.parametrize("line", EXPECTED)
def test_a_line_of_the_page_gives_the_expected_answer(line: str) -> None:
    found = eval(line, scene())
    assert (found.tolist() if isinstance(found, np.ndarray) else found) == EXPECTED[line]


def _granted(found: Allocation) -> None:
    assert (found.claims.rows.tolist(), found.amount.gpus.tolist()) == ([0, 1], [3, 0])  # type: ignore[union-attr]
    assert (found.verdicts.rows.tolist(), found.verdicts.reasons.tolist()) == ([1], [Reason.OUTRANKED])


def _reasons(found: Any) -> None:
    assert found.reasons.tolist() == [Reason.SHARE_USED_UP] * 2


def _woken(found: Allocation) -> None:
    assert found.wake_at == Seconds(110.0)


def _remembered(found: object) -> None:
    assert found is MEMO


def _drawn(found: float) -> None:
    assert 0.0 <= found < 1.0
    assert found == eval("snapshot.rng(self.name).random()", scene())


RETURNED: dict[str, Any] = {
    "Allocation.to_jobs(jobs, sizes, otherwise=Reason.OUTRANKED)": _granted,
    "turned_down(jobs, Reason.SHARE_USED_UP)": _reasons,
    "dataclasses.replace(allocation, wake_at=Seconds(snapshot.now + 60.0))": _woken,
    "snapshot.memos.of(self.name, Stage.ALLOCATION)": _remembered,
    "snapshot.rng(self.name).random()": _drawn,
}
"""By line that makes a value to return, the check of it."""


@pytest.mark.parametrize("line", RETURNED)
def test_a_line_of_the_page_returns_a_value_that_its_stage_accepts(line: str) -> None:
    RETURNED[line](eval(line, scene()))


def test_the_example_cluster_has_a_gpu_that_is_down() -> None:
    assert scene()["snapshot"].holdings.state[7] == GpuState.DOWN
