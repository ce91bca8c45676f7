"""No machine gives more CPUs or memory than it has, whatever a placement says of the leases that stay."""

from typing import Any, ClassVar

import numpy as np
import pytest

from assembling import assemble
from eunomia import Allocation, Menus, Offer, Placement, Snapshot, Stage, Triggers, hookimpl
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.contract.stages import Stages
from eunomia.contract.verdicts import Reason
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import default_registry
from eunomia.round.invariants import StateError, check_state
from eunomia.testing.drive import Drive
from eunomia.units import AppId, Cause, JobId, UserId

CLUSTER = Cluster.parse("1x2 V100 24cpu 48GB")


class Planner:
    """Places each claim on the GPUs that it holds, or on the first free ones, with the CPUs of its list by job."""

    name = "planner"
    api = 1
    contracts: ClassVar[dict[Stage, Any]] = {}

    def __init__(self, cpus: dict[str, list[float]]) -> None:
        self.cpus = cpus

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        held, rows = snapshot.holdings, allocation.claims.rows
        free = [gpu for gpu in offer.gpus.tolist() if held.lease[gpu] < 0]
        claims, gpus, start, cpus = [], [], [0], []
        for claim in allocation.order.tolist():
            mine = np.flatnonzero(held.job == rows[claim]).tolist() or free[:1]
            free = [gpu for gpu in free if gpu not in mine]
            if mine:
                claims.append(claim)
                gpus += mine
                wanted = self.cpus[snapshot.jobs.id[rows[claim]]]
                cpus.append(wanted.pop(0) if len(wanted) > 1 else wanted[0])
                start.append(len(gpus))
        index, offsets = np.array(claims, np.int32), np.array(start, np.int64)
        return Placement(claim=index, gpus=np.array(gpus, np.int64), start=offsets, cpus=np.array(cpus, float))


class EveryJob:
    """Grants every job its least number of GPUs again in each round, those that run first."""

    name = "every_job"
    api = 1
    contracts: ClassVar[dict[Stage, Any]] = {}

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        return Triggers(on=frozenset({Cause.ARRIVED, Cause.FREED}), all_on=frozenset({Cause.ARRIVED, Cause.FREED}))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, offer: Offer) -> Allocation:
        jobs = offer.candidates
        return Allocation.to_jobs(jobs, snapshot.jobs.least[jobs].astype(np.int64), otherwise=Reason.OUTRANKED)


def made(name: str, **options: object) -> Any:
    return default_registry().make(name, options, alias=name, place=str)


def stages(placement: Any) -> Stages:
    return assemble(
        elasticity=made("fixed"),
        valuation=made("fifo"),
        allocation=EveryJob(),
        placement=placement,
    )


def drive_of(cpus: dict[str, list[float]]) -> Drive:
    arbiter = Arbiter(CLUSTER, stages(Planner(cpus)), stages(made("packed")))
    arbiter.strict = True
    return Drive(arbiter, work={JobId("ana/0"): 50.0, JobId("ben/0"): 50.0})


SCRIPT: list[tuple[float, Event]] = [
    (time, event)
    for time, name in ((0.0, "ana"), (10.0, "ben"))
    for event in (
        AppArrived(app=AppId(name), user=UserId(name), divides=False),
        JobAdded(job=JobId(f"{name}/0"), app=AppId(name), least=1, most=1),
    )
]


def test_processes_use_exactly_the_cpus_that_the_arbiter_checked() -> None:
    drive = drive_of({"ana/0": [19.0, 5.0], "ben/0": [19.0]})
    sums: list[float] = []

    def watch(drive: Drive, decision: Decision) -> None:
        drive.check_machines()
        sums.append(float(drive.arbiter.state.holdings.live.cpus_in_use.sum()))

    drive.watch = watch
    outcome = drive.run(SCRIPT, until=20.0)
    kinds = [order.kind.name for decision in outcome.decisions for order in decision.transitions]
    assert kinds == ["START", "RETUNE", "START"] or kinds == ["START", "START", "RETUNE"]
    assert drive.arbiter.state.holdings.live.cpus.tolist() == [5.0, 19.0]
    assert {gpu: cpus for gpu, (cpus, _) in drive.in_use.items()} == {0: 5.0, 1: 19.0}
    assert max(sums) <= 24.0


@pytest.mark.parametrize(("column", "rule"), [("cpus", "CPUs"), ("memory_gib", "memory")])
def test_the_state_sums_the_cpus_and_memory_in_use_by_machine(column: str, rule: str) -> None:
    drive = drive_of({"ana/0": [12.0], "ben/0": [12.0]})
    drive.run(SCRIPT, until=20.0)
    state = drive.arbiter.state
    check_state(state)
    getattr(state.holdings.live, column)[1] = 60.0
    with pytest.raises(StateError, match=f"{rule} of a machine must not be overcommitted"):
        check_state(state)
