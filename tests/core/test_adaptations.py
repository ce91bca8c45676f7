"""The history of a job's batch sizes: kept in order, through checkpoints and journals; rates by batch size."""

import itertools
import json
import math
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia import Cluster, Profile, Seconds
from eunomia.arbiter import Arbiter
from eunomia.contract.events import (
    Adapted,
    AppArrived,
    Event,
    JobAdded,
    JobFinished,
    JobReported,
    RateMeasured,
    SingleJobArrived,
)
from eunomia.journal.journal import Journal
from eunomia.journal.recovery import recover
from eunomia.model.adaptations import MOST_ADAPTATIONS, Adaptation, Adaptations, Adapts, Regime, adapts_named
from eunomia.units import AppId, Basis, Cause, JobId, Locality, UserId

JOBS = tuple(JobId(f"a/{number}") for number in range(3))
SITE = Cluster.parse("2x4 V100")
ELASTICITIES = ("fixed", "range", "throughput")


def arbiter(elasticity: str = "fixed") -> Arbiter:
    """No round is due when a job adapts, so that its cause stays."""
    profile = Profile.load("default", settings={"stages.elasticity": elasticity})
    return Arbiter(SITE, profile.stages(SITE), Profile.fallback().stages(SITE))


def added(job: JobId, **more: object) -> JobAdded:
    return JobAdded(job=job, app=AppId("a"), iterations=1e6, seconds_per_iteration=1.0, **more)  # type: ignore[arg-type]


def started(made: Arbiter, **more: object) -> Arbiter:
    """An app of three jobs at time 0."""
    made.step(Seconds(0.0), [AppArrived(app=AppId("a"), user=UserId("ana")), *(added(job, **more) for job in JOBS)])
    return made


def history(made: Arbiter, job: JobId) -> Adaptations:
    return made.snapshot().ledger.adaptations[made.state.job_row(job)]


def adapted(job: JobId, batch: float, done: float, at: float) -> Adapted:
    return Adapted(job=job, batch_size=batch, iterations_done=done, at=Seconds(at))


def test_two_adaptations_between_two_steps_are_both_recorded_in_order() -> None:
    made = started(arbiter(), batch_size=32.0, epochs=10.0, samples_per_epoch=5000.0, adapts=Adapts.GNS)
    events = [adapted(JOBS[0], 64.0, 100.0, 50.0), adapted(JOBS[0], 128.0, 130.0, 80.0)]
    assert made.step(Seconds(100.0), events).faults == ()
    assert Cause.ADAPTED in made.state.counters.causes
    known = history(made, JOBS[0])
    assert known.kept == (
        Adaptation(at=Seconds(50.0), batch_size=64.0, iterations_done=100.0),
        Adaptation(at=Seconds(80.0), batch_size=128.0, iterations_done=130.0),
    )
    assert (known.first_batch_size, known.count) == (32.0, 2)
    row, jobs = made.state.job_row(JOBS[0]), made.snapshot().jobs
    assert (jobs.batch_size[row], jobs.epochs[row], jobs.samples_per_epoch[row]) == (128.0, 10.0, 5000.0)
    assert Adapts(jobs.adapts[row]) is Adapts.GNS
    assert known.regimes(200.0) == (
        Regime(batch_size=32.0, start=0.0, end=100.0),
        Regime(batch_size=64.0, start=100.0, end=130.0),
        Regime(batch_size=128.0, start=130.0, end=200.0),
    )


def test_iterations_default_to_those_of_the_last_report() -> None:
    made = started(arbiter())
    made.step(Seconds(10.0), [JobReported(job=JOBS[1], iterations_done=40.0, rate=2.0)])
    made.state.jobs.live.since[made.state.job_row(JOBS[1])] = 10.0
    made.step(Seconds(20.0), [Adapted(job=JOBS[1], batch_size=16.0)])
    (one,) = history(made, JOBS[1]).kept
    assert (one.at, one.iterations_done) == (20.0, 60.0)
    assert math.isnan(history(made, JOBS[1]).first_batch_size)


def test_beyond_the_limit_the_oldest_adaptations_are_only_counted() -> None:
    made = started(arbiter(), batch_size=1.0)
    for number in range(MOST_ADAPTATIONS + 3):
        made.step(Seconds(float(number)), [adapted(JOBS[0], float(number + 2), float(number), float(number))])
    known = history(made, JOBS[0])
    assert (len(known.kept), known.dropped, known.count) == (MOST_ADAPTATIONS, 3, MOST_ADAPTATIONS + 3)
    assert (known.first_batch_size, known.first_iterations) == (4.0, 2.0)
    assert known.regimes(4.0)[0] == Regime(batch_size=4.0, start=2.0, end=3.0)


def test_work_lost_in_a_restart_from_a_checkpoint_is_not_in_the_regimes() -> None:
    made = started(arbiter(), batch_size=32.0)
    made.step(Seconds(9.0), [adapted(JOBS[0], 64.0, 100.0, 5.0), adapted(JOBS[0], 128.0, 150.0, 9.0)])
    made.step(Seconds(20.0), [JobReported(job=JOBS[0], iterations_done=90.0, rate=1.0)])
    decision = made.step(Seconds(30.0), [adapted(JOBS[0], 64.0, 100.0, 30.0)])
    assert decision.faults == ()
    known = history(made, JOBS[0])
    assert [one.batch_size for one in known.kept] == [64.0, 128.0, 64.0]
    assert known.regimes(120.0) == (
        Regime(batch_size=32.0, start=0.0, end=100.0),
        Regime(batch_size=64.0, start=100.0, end=120.0),
    )


GOOD = adapted(JOBS[0], 64.0, 100.0, 10.0)
WRONG: dict[str, tuple[Event, str]] = {
    "earlier": (adapted(JOBS[0], 128.0, 200.0, 9.0), "regimes must be in order"),
    "fewer iterations": (adapted(JOBS[0], 128.0, 99.0, 11.0), "regimes must be in order"),
    "beyond the last epoch": (adapted(JOBS[0], 128.0, 1e5, 12.0), "a job must adapt within its 10 epochs"),
    "zero": (adapted(JOBS[0], 0.0, 101.0, 12.0), "a batch size must be a number above 0"),
    "negative": (adapted(JOBS[0], -8.0, 101.0, 12.0), "a batch size must be a number above 0"),
    "nan": (adapted(JOBS[0], math.nan, 101.0, 12.0), "a batch size must be a number above 0"),
    "endless": (adapted(JOBS[0], math.inf, 101.0, 12.0), "a batch size must be a number above 0"),
    "iterations": (adapted(JOBS[0], 64.0, -1.0, 12.0), "iterations done must be a number of 0 or more"),
    "ended": (adapted(JOBS[2], 64.0, 1.0, 12.0), "an event must name a job that has not ended"),
    "rate": (
        RateMeasured(
            job=JOBS[0], gpus=1, locality=Locality.ISLAND, rate=1.0, gpu_type="V100", batch_size=0.0
        ),
        "a batch size must be a number above 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_announcement_is_a_fault_and_changes_nothing(name: str) -> None:
    made = started(arbiter(), batch_size=32.0, epochs=10.0, samples_per_epoch=3200.0)
    made.step(Seconds(20.0), [GOOD, JobFinished(job=JOBS[2])])
    before = made.save()
    event, rule = WRONG[name]
    decision = made.step(Seconds(20.0), [event])
    (fault,) = decision.faults
    assert rule in fault.what
    assert json.loads(zlib.decompress(made.save()))["adaptations"] == json.loads(zlib.decompress(before))["adaptations"]
    assert history(made, JOBS[0]).kept == (Adaptation(at=Seconds(10.0), batch_size=64.0, iterations_done=100.0),)
    assert made.state.jobs.live.batch_size[made.state.job_row(JOBS[0])] == 64.0
    assert not made.state.reports.measured


@pytest.mark.parametrize("name", ["batch_size", "epochs", "samples_per_epoch"])
@pytest.mark.parametrize("number", [0.0, -1.0, math.inf])
@pytest.mark.parametrize("together", [False, True])
def test_a_job_with_an_invalid_declaration_is_refused(name: str, number: float, *, together: bool) -> None:
    made = arbiter()
    arrival = AppArrived(app=AppId("a"), user=UserId("ana"), divides=False)
    job = added(JOBS[0], **{name: number})
    events: list[Event] = [SingleJobArrived(arrival=arrival, job=job)] if together else [arrival, job]
    decision = made.step(Seconds(0.0), events)
    (fault,) = decision.faults
    assert f"{name} must be a number above 0" in fault.what
    assert JOBS[0] not in made.state.names.jobs


def test_an_announcement_that_arrives_twice_changes_nothing() -> None:
    made = started(arbiter(), batch_size=32.0)
    twice = [adapted(JOBS[0], 64.0, 100.0, 5.0), adapted(JOBS[0], 128.0, 150.0, 9.0)]
    made.step(Seconds(9.0), twice)
    before = history(made, JOBS[0])
    assert made.step(Seconds(20.0), twice).faults == ()
    assert history(made, JOBS[0]) == before


def test_modes_of_adaptation_are_parsed_by_name() -> None:
    assert adapts_named(None) is Adapts.UNKNOWN
    assert adapts_named("accordion") is Adapts.ACCORDION
    with pytest.raises(Exception, match="adapts must be one of static, accordion, gns, other") as failed:
        adapts_named("gnss", place="[job].adapts")
    assert '"gnss"' in str(failed.value)


def test_a_job_that_ends_leaves_no_history_of_adaptations() -> None:
    made = started(arbiter())
    made.step(Seconds(20.0), [GOOD])
    made.step(Seconds(21.0), [JobFinished(job=JOBS[0])])
    assert made.snapshot().ledger.adaptations == {}
    made.step(Seconds(22.0), [added(JobId("a/9"))])
    assert made.snapshot().ledger.adaptations == {}


def test_the_snapshot_of_one_app_has_the_history_of_its_own_jobs_only() -> None:
    made = started(arbiter())
    made.step(
        Seconds(1.0), [AppArrived(app=AppId("b"), user=UserId("bob")), JobAdded(job=JobId("b/0"), app=AppId("b"))]
    )
    made.step(Seconds(20.0), [GOOD, adapted(JobId("b/0"), 8.0, 5.0, 20.0)])
    alone = made.snapshot().only(made.state.app_row(AppId("b")))
    assert [[one.batch_size for one in known.kept] for known in alone.ledger.adaptations.values()] == [[8.0]]


# --- rates by batch size ---------------------------------------------------------------------------------------------


def rate(job: JobId, found: float, batch: float = math.nan, gpus: int = 1) -> RateMeasured:
    where = {"locality": Locality.ISLAND, "gpu_type": "V100"}
    return RateMeasured(job=job, gpus=gpus, rate=found, batch_size=batch, **where)  # type: ignore[arg-type]


@pytest.mark.parametrize("elasticity", ELASTICITIES)
def test_a_menu_has_the_rates_of_the_current_batch_size(elasticity: str) -> None:
    made = started(arbiter(elasticity), batch_size=32.0)
    row = made.state.job_row(JOBS[0])
    sized = made.chosen.elasticity
    made.step(Seconds(1.0), [rate(JOBS[0], 10.0, 32.0), rate(JOBS[0], 6.0, 64.0), rate(JOBS[1], 7.0)])
    seen = []
    for time, batch in ((2.0, 64.0), (3.0, 128.0), (4.0, 32.0)):
        menus = sized(made.snapshot())
        seen.append((menus.rate(row, 1), menus.rate(made.state.job_row(JOBS[1]), 1)))
        points = menus.points
        mine = points.curve == menus.curve[row]
        assert points.batch_size is not None
        here = made.state.jobs.live.batch_size[row]
        assert set(points.batch_size[mine & (points.basis == int(Basis.MEASURED))]) <= {here}
        made.step(Seconds(time), [adapted(JOBS[0], batch, time, time)])
    assert seen == [(10.0, 7.0), (6.0, 7.0), (1.0, 7.0)]  # 128 was never measured: as declared
    assert sized(made.snapshot()).rate(row, 1) == 10.0
    assert [seen.batch_size for seen in made.snapshot().measured_at_others[row]] == [64.0]


def test_a_rate_replaces_the_earlier_one_of_the_same_batch_size() -> None:
    made = started(arbiter(), batch_size=32.0)
    row = made.state.job_row(JOBS[0])
    made.step(Seconds(1.0), [rate(JOBS[0], 10.0, 32.0), rate(JOBS[0], 6.0, 64.0)])
    made.step(Seconds(2.0), [rate(JOBS[0], 11.0, 32.0), rate(JOBS[0], 7.0, 64.0)])
    assert [seen.rate for seen in made.snapshot().measured[row]] == [11.0]
    assert [seen.rate for seen in made.snapshot().measured_at_others[row]] == [7.0]


# --- random histories ------------------------------------------------------------------------------------------------

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(range(len(JOBS))),
        st.floats(min_value=0.5, max_value=1e6),
        st.floats(min_value=0.5, max_value=1e4),
        st.floats(min_value=0.0, max_value=1e3),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(changes=CHANGES, cuts=st.sets(st.integers(0, 39)), saves=st.sets(st.integers(0, 39)), shuffle=st.randoms())
def test_the_history_equals_the_reported_adaptations_even_after_recoveries(
    changes: list[tuple[int, float, float, float]], cuts: set[int], saves: set[int], shuffle: "object"
) -> None:
    """Adaptations of several jobs, several in a step and in any order of jobs, with recoveries between the steps."""
    expected: dict[JobId, list[Adaptation]] = {job: [] for job in JOBS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        made, now = arbiter(), 0.0
        first = [AppArrived(app=AppId("a"), user=UserId("ana")), *(added(job, batch_size=32.0) for job in JOBS)]
        pending: list[list[Adapted]] = [[] for _ in JOBS]
        done = [0.0] * len(JOBS)
        with Journal.open(path) as journal:
            journal.append(0.0, first, made.step(Seconds(0.0), first))
        for index, (job, batch, more, wait) in enumerate(changes):
            now, done[job] = now + wait, done[job] + more
            pending[job].append(adapted(JOBS[job], batch, done[job], now))
            expected[JOBS[job]].append(Adaptation(at=Seconds(now), batch_size=batch, iterations_done=done[job]))
            if index not in cuts:
                continue
            order = list(range(len(JOBS)))
            shuffle.shuffle(order)  # type: ignore[attr-defined]
            events = list(itertools.chain.from_iterable(pending[number] for number in order))
            pending = [[] for _ in JOBS]
            with Journal.open(path) as journal:
                decision = made.step(Seconds(now), events)
                assert decision.faults == ()
                journal.append(now, events, decision)
                if index in saves:
                    journal.checkpoint(made.save())
                made = arbiter()
                recover(made, journal)
        made.step(Seconds(now), list(itertools.chain.from_iterable(pending)))
        kept = made.snapshot().ledger.adaptations
        for job, theirs in expected.items():
            row = made.state.job_row(job)
            assert kept[row].kept == tuple(theirs) if theirs else row not in kept
