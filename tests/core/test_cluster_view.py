"""The read-only view of what the arbiter knows: it shows the store as it is, and refuses writes."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded, JobFinished, Started
from eunomia.model.cluster import Cluster
from eunomia.model.leases import LeaseState
from eunomia.platform.profiles import Profile
from eunomia.store import writers
from eunomia.units import NONE, AppId, JobId, Seconds, UserId

READ = ("users", "apps", "jobs", "gpus")


def arbiter_of(cluster: str = "1x4 V100 8cpu 64GB", policy: str = "fifo") -> Arbiter:
    found = Cluster.parse(cluster)
    return Arbiter(found, Profile.load(policy).stages(found), Profile.fallback().stages(found), seed=7)


def begun() -> Arbiter:
    """Two apps of one user: one job runs on three GPUs, and two wait."""
    arbiter = arbiter_of()
    events = [AppArrived(app=AppId(app), user=UserId("ana")) for app in ("a", "b")]
    jobs = [("a/1", 3), ("b/1", 4), ("a/2", 2)]
    added = [JobAdded(job=JobId(job), app=AppId(job[0]), least=gpus, most=gpus) for job, gpus in jobs]
    decision = arbiter.step(Seconds(1.0), [*events, *added])
    arbiter.step(Seconds(2.0), [Started(lease=order.lease, epoch=order.epoch) for order in decision.transitions])
    return arbiter


def test_rows_map_to_ids_and_an_app_lists_its_jobs_by_arrival() -> None:
    view = begun().view
    assert [view.app_id(view.app_row(AppId(app))) for app in "ab"] == ["a", "b"]
    assert [view.job_id(row) for row in view.jobs_of(view.app_row(AppId("a"))).tolist()] == ["a/1", "a/2"]
    assert view.app_row(AppId("z")) == view.job_row(JobId("a/9")) == NONE
    assert view.jobs_of(NONE).size == 0
    assert view.leases_of(NONE) == []
    assert dict(view.names.jobs).keys() == {"a/1", "b/1", "a/2"}


def test_the_view_shows_the_counters_of_the_state() -> None:
    arbiter = begun()
    view = arbiter.view
    assert (view.now, view.round, view.seed, view.fallen_back, view.draws) == (2.0, 1, 7, False, 0)
    assert view.last_epoch == arbiter.state.counters.last_epoch > 0
    assert view.open_offer is None


def test_a_lease_of_the_view_has_its_current_state_and_amounts() -> None:
    view = begun().view
    (lease,) = view.leases()
    assert view.lease(lease.id) is not None
    assert view.lease_of(view.job_row(JobId("b/1"))) is None
    assert lease.state is LeaseState.ACTIVE
    assert lease.gpus.tolist() == lease.running.tolist() == np.flatnonzero(view.gpus.lease == lease.id).tolist()
    assert [one.id for one in view.leases_of(lease.app)] == [lease.id]
    assert view.job_id(lease.job) == "a/1"
    cpus, memory_gib = view.amounts.of(lease.id)
    shares = view.amounts.shares(lease.gpus)
    assert cpus.tolist() == shares[0].tolist() == [2.0] * 3
    assert memory_gib.tolist() == shares[1].tolist()
    assert view.amounts.are_known
    assert not view.amounts.differ
    assert not view.amounts.tuning
    assert not view.amounts.tight


def test_the_view_shows_the_last_verdict_on_a_job_and_marks_its_changes() -> None:
    arbiter = begun()
    view = arbiter.view
    waits, runs = view.job_row(JobId("b/1")), view.job_row(JobId("a/1"))
    verdict = view.verdict(waits)
    assert verdict.reason is not None
    assert (verdict.stage is None) is (verdict.plugin == "")
    assert view.verdict(runs).reason is None
    before = view.verdict_marks
    arbiter.step(Seconds(3.0), [JobFinished(job=JobId("a/1"))])
    assert (view.verdict_marks != before).any(axis=0)[runs]


def test_columns_of_the_view_follow_each_step_and_a_loaded_state_gets_another_view() -> None:
    arbiter = begun()
    view, saved = arbiter.view, arbiter.save()
    states, row = view.jobs.state, view.job_row(JobId("a/1"))
    was = states[row]
    arbiter.step(Seconds(3.0), [JobFinished(job=JobId("a/1"))])
    assert states[row] != was
    arbiter.load(saved)
    assert arbiter.view is not view
    assert arbiter.view.now == 2.0
    assert arbiter.view.jobs.state[row] == was


def test_columns_of_the_view_share_memory_with_a_table_that_has_grown() -> None:
    arbiter = begun()
    view = arbiter.view
    many = [JobAdded(job=JobId(f"a/{number}"), app=AppId("a"), least=1, most=1) for number in range(3, 100)]
    arbiter.step(Seconds(3.0), many)
    assert view.jobs.id[view.job_row(JobId("a/99"))] == "a/99"
    assert not np.shares_memory(view.jobs.least, np.empty(1))
    assert np.shares_memory(view.jobs.least, arbiter.state.jobs.live.least)


def test_the_view_gives_the_same_snapshot_as_stages_get() -> None:
    arbiter = begun()
    shown, asked = arbiter.view.show(), arbiter.snapshot()
    assert (shown.now, shown.round) == (asked.now, asked.round)
    assert shown.active.tolist() == asked.active.tolist()


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", READ)
def test_a_cell_of_any_column_is_read_only(table: str) -> None:
    columns = getattr(begun().view, table)
    for field in dataclasses.fields(columns):
        column = getattr(columns, field.name)
        with pytest.raises(ValueError, match="read-only"):
            column[0] = column[0]


def test_neither_the_view_nor_the_values_that_it_returns_can_be_changed() -> None:
    view = begun().view
    lease = next(view.leases())
    owners: tuple[tuple[Any, str], ...] = ((view, "jobs"), (view, "now"), (view.names, "jobs"), (lease, "state"))
    for owner, name in (*owners, (view.reports, "forecasts")):
        with pytest.raises(AttributeError):
            setattr(owner, name, None)
    with pytest.raises(TypeError):
        view.names.jobs[JobId("x")] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        view.reports.forecasts[0] = None  # type: ignore[index]
    for array in (lease.gpus, lease.running, view.job_ledger.attained, view.app_ledger.gpu_seconds):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_no_function_that_writes_the_store_accepts_the_view() -> None:
    arbiter = begun()
    before = arbiter.save()
    given: Any = arbiter.view
    lease = next(given.leases())
    tries = [
        lambda: writers.move(given, 0, 1),
        lambda: writers.count(given, 0, Seconds(5.0)),
        lambda: writers.halt(given, 0),
        lambda: writers.release(given, lease, [0], Seconds(5.0)),
        lambda: writers.drop_job(given, 0),
        lambda: writers.mark(given, [0], 4),
        lambda: writers.divide(given, 0, 0),
    ]
    for attempt in tries:
        with pytest.raises(AttributeError):
            attempt()
    assert arbiter.save() == before


def test_a_lease_that_was_read_earlier_does_not_change_with_the_store() -> None:
    arbiter = begun()
    lease = next(arbiter.view.leases())
    arbiter.step(Seconds(3.0), [JobFinished(job=JobId("a/1"))])
    assert lease.state is LeaseState.ACTIVE
