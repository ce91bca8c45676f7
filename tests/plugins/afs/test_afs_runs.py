"""AFS in whole runs: the plain way decides alike, GPUs follow at each event, and jobs take turns where GPUs are few."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assembling import assemble
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded, JobFinished
from eunomia.contract.stages import Rounds
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import default_registry
from eunomia.round.invariants import check_state
from eunomia.testing.drive import Delays, Drive
from eunomia.units import AppId, JobId, Seconds, UserId
from strength import examples

Job = tuple[float, int, int, float, float | None, str | None]
"""Arrival, least, most, iterations, seconds an iteration, kind."""


def made(name: str, **options: object) -> Any:
    return default_registry().make(name, options, alias=name, place=str)


def arbiter(cluster: str, *, valuation: str = "afs_curves", plain: bool = False, **options: object) -> Arbiter:
    stages = assemble(
        elasticity=made("throughput"),
        valuation=made(valuation),
        allocation=made("afs", **options),
        placement=made("packed"),
        rounds=Rounds(suspend_grace=Seconds(5.0)),
    )
    found = Arbiter(Cluster.parse(cluster), stages, stages, plain=plain)
    found.strict = True
    return found


def events_of(jobs: tuple[Job, ...]) -> tuple[list[tuple[float, Event]], dict[JobId, float]]:
    events: list[tuple[float, Event]] = []
    work: dict[JobId, float] = {}
    for number, (time, least, most, iterations, seconds, kind) in enumerate(jobs):
        app, job = AppId(f"a{number}"), JobId(f"a{number}/0")
        declared = {} if seconds is None else {"iterations": iterations, "seconds_per_iteration": seconds}
        events.append((time, AppArrived(app=app, user=UserId("ana"), divides=False)))
        events.append((time, JobAdded(job=job, app=app, least=least, most=most, kind=kind, **declared)))
        work[job] = iterations * (seconds or 1.0)
    return events, work


def run(jobs: tuple[Job, ...], cluster: str, delays: Delays = Delays(), **options: Any) -> list[Decision]:  # noqa: B008
    events, work = events_of(jobs)
    drive = Drive(arbiter(cluster, **options), work=work, delays=delays, seed=3, watch=checked)
    return drive.run(events, until=3000.0).decisions


def checked(drive: Drive, decision: Decision) -> None:
    check_state(drive.arbiter.state)
    assert not decision.faults


def comparable(decision: Decision) -> tuple[object, ...]:
    orders = [(order.kind.value, order.job, tuple(order.gpus.tolist())) for order in decision.transitions]
    return decision.now, decision.round, orders, sorted((one.job, one.reason) for one in decision.waiting)


JOBS = st.lists(
    st.tuples(
        st.integers(0, 200).map(lambda quarter: quarter / 4.0),
        st.sampled_from([1, 1, 1, 2]),
        st.sampled_from([2, 4, 8]),
        st.sampled_from([20.0, 60.0, 200.0]),
        st.sampled_from([1.0, 1.0, 0.5, None]),
        st.sampled_from([None, "a", "b"]),
    ),
    min_size=1,
    max_size=14,
).map(tuple)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    JOBS,
    st.sampled_from(["1x2 V100", "2x4 V100", "1x8 V100, 1x3 V100"]),
    st.sampled_from([Delays(), Delays(order=0.5, start=2.0, release=3.0)]),
    st.sampled_from(["afs_curves", "afs_peak"]),
    st.sampled_from([{}, {"lengths": "unknown", "unit": "30s"}, {"scan": "arrival"}]),
)
def test_the_plain_implementation_makes_the_same_decisions(
    jobs: tuple[Job, ...], cluster: str, delays: Delays, valuation: str, options: dict[str, Any]
) -> None:
    short, plain = (run(jobs, cluster, delays, valuation=valuation, plain=way, **options) for way in (False, True))
    assert [comparable(one) for one in short] == [comparable(one) for one in plain]


def sizes(found: Arbiter) -> dict[str, int]:
    state = found.state
    return {str(state.job_id(lease.job)): len(lease.gpus) for lease in state.leases.values() if lease.gpus}


def test_jobs_grow_and_shrink_at_each_arrival_and_end() -> None:
    """Alone a job gets all GPUs that speed it up; a second one gets some of them, and gives them back at its end."""
    found = arbiter("1x4 V100")
    events, work = events_of(((0.0, 1, 4, 4000.0, 1.0, None), (10.0, 1, 4, 4000.0, 1.0, None)))
    seen: dict[float, dict[str, int]] = {}
    drive = Drive(found, work=work, watch=lambda drive, decision: seen.update({float(decision.now): sizes(found)}))
    drive.run([*events, (50.0, JobFinished(job=JobId("a1/0")))], until=60.0)
    assert seen[0.0] == {"a0/0": 4}
    assert seen[10.0] == {"a0/0": 2, "a1/0": 2}
    assert seen[50.0] == {"a0/0": 4}


def test_with_fewer_gpus_than_jobs_the_shortest_jobs_run() -> None:
    jobs = ((0.0, 1, 2, 300.0, 1.0, None), (0.0, 1, 2, 100.0, 1.0, None), (0.0, 1, 2, 200.0, 1.0, None))
    found = arbiter("1x2 V100")
    events, work = events_of(jobs)
    Drive(found, work=work).run(events, until=5.0)
    assert sizes(found) == {"a1/0": 1, "a2/0": 1}


@pytest.mark.parametrize("unit", [20.0, 50.0])
def test_without_known_lengths_jobs_take_turns_of_one_time_unit(unit: float) -> None:
    """Three jobs on two GPUs: after each unit the job with the fewest units goes on."""
    jobs = tuple((0.0, 1, 2, 3000.0, 1.0, None) for _ in range(3))
    found = arbiter("1x2 V100", lengths="unknown", unit=f"{unit:g}s")
    events, work = events_of(jobs)
    seen: list[tuple[float, list[str]]] = []
    drive = Drive(
        found, work=work, watch=lambda drive, decision: seen.append((float(decision.now), sorted(sizes(found))))
    )
    drive.run(events, until=3.5 * unit)
    served = {round(now / unit, 6): jobs for now, jobs in seen}
    assert served == {
        0.0: ["a0/0", "a1/0"],
        1.0: ["a0/0", "a2/0"],
        2.0: ["a1/0", "a2/0"],
        3.0: ["a0/0", "a1/0"],
    }
    received = found.state.job_ledger.received[:3].sum(axis=1)
    assert received.max() - received.min() <= unit + 1e-6
