"""A waiting job whose verdict differs from the last default is listed, so that the next round looks at it."""

import pytest

from assembling import assemble
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded, SingleJobArrived
from eunomia.contract.stages import Rounds
from eunomia.contract.verdicts import Reason
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import default_registry
from eunomia.round.invariants import StateError, check_state
from eunomia.units import AppId, JobId, Seconds, UserId


def test_the_check_finds_a_waiting_job_whose_verdict_no_round_updates() -> None:
    registry = default_registry()
    parts = {"elasticity": "fixed", "valuation": "fifo", "allocation": "ordered", "placement": "packed"}
    made = {stage: registry.make(name, {}, alias=name, place=str) for stage, name in parts.items()}
    stages = assemble(**made, rounds=Rounds())
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages, stages)
    for number, name in enumerate(("runs", "waits")):
        app = AppId(name)
        job = JobAdded(job=JobId(f"{name}/0"), app=app, least=2, most=2, iterations=9.0, seconds_per_iteration=1.0)
        arrival = AppArrived(app=app, user=UserId("ana"), divides=False)
        arbiter.step(Seconds(float(number)), [SingleJobArrived(arrival=arrival, job=job)])
    state = arbiter.state
    row = state.job_row(JobId("waits/0"))
    check_state(state)
    assert state.waiting_jobs.rows == {row}
    assert state.waiting_jobs.default is not None
    state.jobs.cells.reason[row] = int(Reason.NO_SIZE_FITS)
    check_state(state)  # the next round looks at the job
    state.waiting_jobs.off_default.clear()
    with pytest.raises(StateError, match="a waiting job must be listed where its verdict differs"):
        check_state(state)
