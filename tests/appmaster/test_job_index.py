"""The indexes of an app's jobs, and the kept answers of its tuner, equal what a scan and the tuner itself give."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hpo_adapters.tuner_lab import search

from eunomia_appmaster.master.cached_tuner import CachedTuner
from eunomia_appmaster.master.job_index import JobIndex
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.tuner import load_tuner
from strength import examples

GANG = Gang(incarnation=1, gpus=(0,), containers=("c",), stop_at=None, began_at=0.0, from_step=0)
CHANGES = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from(("add", "gang", "step", *JobState))), min_size=1, max_size=60
)


@settings(max_examples=examples(80), deadline=None)
@given(jobs=st.integers(0, 5), changes=CHANGES)
def test_an_index_equals_a_scan_of_all_jobs(jobs: int, changes: list[tuple[int, str]]) -> None:
    index = JobIndex(Job(number=number, parameters={}, seed=0) for number in range(jobs, 0, -1))
    moved, scanned = index.follow("state", "step"), set(index)
    for number, change in changes:
        at = 1 + number % max(1, len(index))
        if change == "add" or not index:
            index.add(Job(number=len(index) + 1, parameters={}, seed=0))
            scanned.add(len(index))
        elif change == "gang":
            index[at].gang = GANG if index[at].gang is None else None
        elif change == "step":
            index[at].step += 1
            scanned.add(at)
        else:
            index[at].state = JobState(change)
            scanned.add(at)
        for state in JobState:
            assert index.in_state(state) == [job for job in index.values() if job.state is state]
        assert index.with_gang() == [job for job in index.values() if job.gang is not None]
        if number == 0:
            assert [job.number for job in moved.take()] == sorted(scanned)
            assert moved.take() == []
            scanned = set()


def searched(kind: str) -> Any:
    found = load_tuner(kind)
    given: dict[str, Any] = {} if kind in ("none", "median_stopping") else {"min_iterations": 10}
    return found.create(search(9, max_iterations=90), found.options_type(**given))


@pytest.mark.parametrize("kind", ["none", "median_stopping", "successive_halving", "hyperband"])
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_cached_answers_equal_those_of_the_tuner(kind: str, data: st.DataObject) -> None:
    tuner = searched(kind)
    kept = CachedTuner(tuner)
    for _ in range(20):
        runs = tuner.runs()
        assert list(kept.runs().values()) == list(runs)
        assert [kept.rank(run.trial) for run in runs] == list(range(len(runs)))
        assert kept.smallest == min((run.least for run in runs), default=1)
        assert kept.ended() == frozenset(tuner.ended())
        assert (list(kept.trials()), kept.is_done()) == (list(tuner.trials()), tuner.is_done())
        assert kept.state() == tuner.state()
        if not runs:
            return
        run = data.draw(st.sampled_from(list(runs)))
        what = data.draw(st.sampled_from(("result", "end", "failure")))
        metric = data.draw(st.sampled_from((0.1, 0.5, 0.9)))
        if what == "result":
            kept.on_result(run.trial, 5, metric)
        elif what == "failure":
            kept.on_failed(run.trial)
        elif run.stop_at is None:
            kept.on_finished(run.trial, 90, metric)
        else:
            kept.on_paused(run.trial, run.stop_at, metric)
