"""Retunes that break a rule: each is refused with the rule, the value and the place, and nothing changes."""

import importlib.util
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from assembling import assemble
from eunomia import Allocation, Contract, Feature, Menus, Offer, Placement, Snapshot, Stage, Triggers, hookimpl
from eunomia.arbiter import Arbiter
from eunomia.contract.allocations import AmountRange, Grants
from eunomia.contract.claims import Claims
from eunomia.contract.events import AppArrived, Event, JobAdded, JobFinished, Retuned
from eunomia.contract.placements import Retunes
from eunomia.model.cluster import Cluster
from eunomia.testing.drive import Drive
from eunomia.units import AppId, Cause, Epoch, JobId, LeaseId, Rest, Unit, UserId

_spec = importlib.util.spec_from_file_location("retuning", Path(__file__).parent / "retuning.py")
assert _spec is not None
assert _spec.loader is not None
lab = sys.modules.setdefault("retuning", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)


class Waiting:
    """Grants one GPU to each waiting job, with a range of CPUs; in the second round it may name no job, or release."""

    name = "waiting"
    api = 1
    contracts: ClassVar[dict[Stage, Contract]] = {}

    def __init__(self, rest: Rest = Rest.KEEP) -> None:
        self.rest = rest

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        return Triggers(on=frozenset({Cause.ARRIVED}), all_on=frozenset({Cause.ARRIVED}))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, offer: Offer) -> Allocation:
        rows = snapshot.active[snapshot.jobs.state[snapshot.active] == 1].astype(np.int32)
        ranges = AmountRange(least=np.full(rows.size, 2.0), most=np.full(rows.size, 8.0))
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=rows),
            amount=Grants(gpus=np.ones(rows.size, np.int64), cpus=ranges),
            order=np.arange(rows.size, dtype=np.int32),
            rest=self.rest if snapshot.now > 5.0 else Rest.KEEP,
        )


class Retuning:
    """Places claims on free GPUs with 4 CPUs each, and retunes as it is built to in the second round."""

    name = "retuning"
    api = 1

    def __init__(
        self, jobs: list[int], cpus: list[float], *, memory_gib: float | None = None, gives: bool = True
    ) -> None:
        memory = None if memory_gib is None else np.full(len(jobs), memory_gib)
        self.retunes = Retunes(jobs=np.array(jobs, np.int32), cpus=np.array(cpus, float), memory_gib=memory)
        given = frozenset({Feature.RETUNES} if gives else ())
        self.contracts: dict[Stage, Contract] = {Stage.PLACEMENT: Contract(gives=given)}

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        free = np.flatnonzero(snapshot.holdings.lease == -1)[: allocation.order.size]
        return Placement(
            claim=allocation.order[: free.size],
            gpus=free,
            start=np.arange(free.size + 1),
            cpus=np.full(free.size, 4.0),
            retunes=self.retunes if snapshot.now > 5.0 else None,
        )


def run(
    placement: Any, rest: Rest = Rest.KEEP, *events: tuple[float, Event], cluster: str = "1x4 V100 24cpu 48GB"
) -> tuple[Drive, list[str]]:
    def stages(chosen: Any) -> Any:
        return assemble(
            elasticity=lab.made("fixed"), valuation=lab.made("fifo"), allocation=Waiting(rest), placement=chosen
        )

    arbiter = Arbiter(Cluster.parse(cluster), stages(placement), stages(lab.made("packed")))
    arbiter.strict = False
    script = list(events)
    for time, name in ((0.0, "ana"), (10.0, "ben")):
        script.append((time, AppArrived(app=AppId(name), user=UserId(name), divides=False)))
        script.append((time, JobAdded(job=JobId(f"{name}/0"), app=AppId(name), least=1, most=1)))
    outcome = Drive(arbiter, work={JobId("ana/0"): 50.0, JobId("ben/0"): 50.0})
    made = outcome.run(script, until=10.5)
    return outcome, [fault.what for decision in made.decisions for fault in decision.faults]


BAD: list[tuple[list[int], list[float], str, str, str]] = [
    ([0], [30.0], "CPUs of a machine must not be overcommitted", "34 of 24", "m01"),
    ([0], [9.0], "at least 2 and at most 8 CPUs", "9", "ana/0"),
    ([0], [1.0], "at least 2 and at most 8 CPUs", "1", "ana/0"),
    ([1], [4.0], "must run on a lease of its own", "waiting", "ben/0"),
    ([7], [4.0], "must name a job that is in use", "7", ""),
    ([0, 0], [4.0, 5.0], "must be retuned once", "0 0", ""),
    ([0], [float("nan")], "CPUs of a retune must be at least 0", "nan", "ana/0"),
    ([0], [4.0, 5.0], "must have CPUs for each job", "2 for 1", ""),
]


@pytest.mark.parametrize(("jobs", "cpus", "rule", "value", "place"), BAD)
def test_a_retune_that_breaks_a_rule_is_refused(
    jobs: list[int], cpus: list[float], rule: str, value: str, place: str
) -> None:
    drive, faults = run(Retuning(jobs, cpus))
    assert len(faults) == 1
    assert rule in faults[0]
    assert value in faults[0]
    assert place in faults[0]
    held = drive.arbiter.state.holdings.live
    assert held.cpus.tolist() == [4.0, 0.0, 0.0, 0.0]
    assert held.cpus_in_use.tolist() == [4.0, 0.0, 0.0, 0.0]


def test_a_retune_of_a_job_that_is_suspended_in_the_same_round_is_refused() -> None:
    _, faults = run(Retuning([0], [6.0]), Rest.RELEASE)
    assert "must not be placed in the same round, nor lose GPUs in it" in faults[0]
    assert "ana/0" in faults[0]


def test_a_retune_beyond_the_memory_of_a_machine_is_refused() -> None:
    drive, faults = run(Retuning([0], [4.0], memory_gib=40.0))
    assert len(faults) == 1
    assert "memory of a machine must not be overcommitted, but got 51.1759 of 44.7035 (m01)" in faults[0]
    held = drive.arbiter.state.holdings.live
    assert held.memory_gib.tolist() == held.memory_gib_in_use.tolist()
    assert held.memory_gib[:2].tolist() == pytest.approx([11.1759, 0.0], rel=1e-4)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (1, "a retune must name a job that is in use, but got [1]"),
        (2, "a job that is retuned must run on a lease of its own, but got waiting (ben/0)"),  # ben has its row
    ],
)
def test_a_retune_of_a_job_that_has_ended_is_refused(row: int, fault: str) -> None:
    added = [JobAdded(job=JobId(f"cid/{number}"), app=AppId("cid"), least=1, most=1) for number in range(2)]
    arrived = AppArrived(app=AppId("cid"), user=UserId("cid"), divides=False)
    ended = [JobFinished(job=job.job) for job in added]
    script = [(0.0, event) for event in (arrived, *added)] + [(7.0, event) for event in ended]
    drive, faults = run(Retuning([row], [6.0]), Rest.KEEP, *script)
    assert faults == [fault]
    assert drive.arbiter.state.holdings.live.cpus[:4].sum() == 4.0  # ana's


def test_a_confirmation_of_an_unknown_lease_changes_nothing() -> None:
    stray = Retuned(lease=LeaseId(9), epoch=Epoch(9), gpus=(0,), cpus=(24.0,), memory_gib=(48.0,))
    drive, faults = run(Retuning([0], [6.0]), Rest.KEEP, (7.0, stray))
    assert not faults
    assert drive.arbiter.state.holdings.live.cpus_in_use.tolist() == [6.0, 4.0, 0.0, 0.0]


def test_a_retune_needs_a_contract_that_declares_retunes() -> None:
    _, faults = run(Retuning([0], [6.0], gives=False))
    assert "only if its contract gives RETUNES" in faults[0]


def test_a_retune_needs_a_cluster_with_cpus_or_memory() -> None:
    _, faults = run(Retuning([0], [6.0]), cluster="1x4 V100")
    assert "only where the cluster gives CPUs or memory of machines" in faults[0]
    assert 'such as "4x8 V100 24cpu 200GB"' in faults[0]


def test_a_retune_within_the_range_is_accepted() -> None:
    drive, faults = run(Retuning([0], [6.0]))
    assert not faults
    state = drive.arbiter.state
    assert state.holdings.live.cpus.tolist() == [6.0, 4.0, 0.0, 0.0]
    assert drive.in_use[0][0] == 6.0
    assert state.jobs.live.starts[:2].tolist() == [1, 1]  # no restart
    lease = state.leases[1]
    assert (lease.epoch, lease.gpus) == (1, [0])
    assert (state.holdings.live.least_cpus[0], state.holdings.live.most_cpus[0]) == (2.0, 8.0)
