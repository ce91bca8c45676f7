"""The invariants over what is really true: random clusters, workloads, faults, delays and overtaking orders."""

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from assembling import assemble
from eunomia import Allocation, Menus, Offer, Snapshot, Stage, Triggers, hookimpl
from eunomia.arbiter import Arbiter
from eunomia.contract.allocations import Grants
from eunomia.contract.bundles import ByBundle
from eunomia.contract.claims import Claims
from eunomia.contract.decisions import Decision, Transition, TransitionKind
from eunomia.contract.events import AppArrived, BidReceived, Event, GpusReturned, JobAdded, Resized, Started
from eunomia.contract.menus import curve_points
from eunomia.contract.stages import Rounds, Stages
from eunomia.contract.verdicts import NO_VERDICTS
from eunomia.model.cluster import Cluster
from eunomia.model.leases import LeaseState
from eunomia.model.workload import JobState
from eunomia.platform.registry import default_registry
from eunomia.round.invariants import check_state
from eunomia.round.plan import Planner, starts
from eunomia.round.show import show
from eunomia.store.saving import save_state
from eunomia.store.state import State
from eunomia.testing.drive import Drive, Outcome
from eunomia.testing.strategies import Scenario, scenarios
from eunomia.units import AppId, Cause, JobId, Rest, Scope, Seconds, Unit, UserId
from strength import examples


class Chaos:
    """Gives random sizes of the menu to jobs, or random counts to apps, whatever they hold: the worst of neighbours."""

    name = "chaos"
    api = 1
    contracts: ClassVar[dict[Stage, Any]] = {}

    def __init__(self, unit: Unit) -> None:
        self.unit = unit

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        everything = frozenset(Cause)
        return Triggers(on=everything, all_on=frozenset({Cause.ARRIVED, Cause.LEASE_ENDED, Cause.BOUNDARY}))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        luck = snapshot.rng(self.name)
        rows = offer.candidates if self.unit is Unit.JOB else snapshot.active_apps
        rows = luck.permutation(rows)[: int(luck.integers(0, rows.size + 1))]
        free, gpus = offer.free_gpus, []
        for row in rows.tolist():
            most = int(luck.integers(0, free + 1))
            gpus.append(menus.largest_at_most(row, most) if self.unit is Unit.JOB else most)
            free -= gpus[-1]
        amount = Grants(gpus=np.array(gpus, dtype=np.int64))
        return Allocation(
            claims=Claims(unit=self.unit, rows=rows.astype(np.int32)),
            amount=amount,
            order=np.flatnonzero(amount.gpus > 0).astype(np.int32),
            rest=Rest.KEEP if luck.random() < 0.7 else Rest.RELEASE,
            protected=Seconds(float(luck.choice([0.0, 5.0]))),
            verdicts=NO_VERDICTS,
        )


def made(name: str, **options: object) -> Any:
    return default_registry().make(name, options, alias=name, place=str)


def fifo() -> Stages:
    return assemble(
        elasticity=made("fixed"), valuation=made("fifo"), allocation=made("ordered"), placement=made("packed")
    )


POLICIES = {
    "fifo, leases": lambda: assemble(
        elasticity=made("range"),
        valuation=made("fifo"),
        allocation=made("ordered"),
        placement=made("packed"),
        rounds=Rounds(lease=Seconds(30.0), suspend_grace=Seconds(2.0)),
    ),
    "las, preemptive": lambda: assemble(
        elasticity=made("range"),
        valuation=made("las"),
        allocation=made("ordered", preemptive=True),
        placement=made("spread"),
        rounds=Rounds(lease=Seconds(20.0), suspend_grace=Seconds(2.0)),
    ),
    "chaos of jobs": lambda: assemble(
        elasticity=made("range"),
        valuation=made("fifo"),
        allocation=Chaos(Unit.JOB),
        placement=made("packed"),
        rounds=Rounds(lease=Seconds(15.0), every=Seconds(11.0), on=frozenset(Cause)),
    ),
    "chaos of apps": lambda: assemble(
        elasticity=made("range"),
        valuation=made("fifo"),
        allocation=Chaos(Unit.APP),
        placement=made("packed"),
        rounds=Rounds(lease=Seconds(15.0), every=Seconds(11.0), on=frozenset(Cause)),
    ),
}
POLICIES["themis"] = lambda: assemble(
    elasticity=made("range"),
    valuation=(themis := made("themis", fairness_knob=0.3)),
    allocation=themis,
    placement=made("packed"),
    rounds=Rounds(lease=Seconds(12.0), suspend_grace=Seconds(2.0)),
)
POLICIES["themis, bids"] = lambda: dataclasses.replace(
    POLICIES["themis"](), rounds=Rounds(lease=Seconds(12.0), suspend_grace=Seconds(2.0), bid_deadline=Seconds(2.0))
)
ALL_ON_OFFER = Rounds(
    lease=Seconds(12.0), suspend_grace=Seconds(2.0), bid_deadline=Seconds(2.0), scope=Scope.ALL, every=Seconds(7.0)
)
POLICIES["themis, bids on all GPUs"] = lambda: dataclasses.replace(POLICIES["themis"](), rounds=ALL_ON_OFFER)


def bid(drive: Drive, decision: Decision) -> None:
    """Answer offers as app masters do: late, out of order, or not at all."""
    for offer in decision.offers:
        snapshot = show(drive.arbiter.state, decision.causes)
        menus = drive.arbiter.chosen.elasticity(snapshot)
        for row in (snapshot.active_apps if offer.apps is None else offer.apps).tolist():
            asked = dataclasses.replace(offer, apps=np.array([row], dtype=np.int32))
            form = drive.arbiter.chosen.valuation(snapshot, menus, asked).form(ByBundle)
            received = BidReceived(app=AppId(snapshot.apps.id[row]), offer=offer.id, form=form)
            drive.at(decision.now + float(drive.luck.uniform(0.0, 3.0)), received)


def played(scenario: Scenario, policy: str) -> tuple[Arbiter, Outcome, list[tuple[float, tuple[Event, ...], Decision]]]:
    arbiter = Arbiter(scenario.cluster, POLICIES[policy](), fifo(), seed=scenario.seed)
    journal: list[tuple[float, tuple[Event, ...], Decision]] = []
    step = arbiter.step

    def recorded(now: Seconds, events: Any = ()) -> Decision:
        decision = step(now, events)
        journal.append((now, tuple(events), decision))
        return decision

    arbiter.step = recorded  # type: ignore[method-assign]
    epochs: list[int] = []

    def watch(drive: Drive, decision: Decision) -> None:
        check_state(arbiter.state)
        bid(drive, decision)
        orders = (*decision.orders, *decision.transitions)
        epochs.extend(int(order.epoch) for order in orders)
        assert not decision.faulty, decision.faults
        for gpu, lease in drive.holders.items():
            believed = arbiter.state.holdings.live.lease[gpu]
            assert believed in (lease, -1) or lease not in arbiter.state.leases, (gpu, lease, believed)

    drive = Drive(
        arbiter, work=dict(scenario.work), delays=scenario.delays, seed=scenario.seed, watch=watch, keep=False
    )
    outcome = drive.run(scenario.script, until=4000.0)
    assert len(set(epochs)) == len(epochs)
    return arbiter, outcome, journal


# Chaos need not let anybody finish: what is checked there is that nothing breaks, not that it is a good policy.
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_no_gpu_has_two_holders_and_gangs_run_whole(policy: str, scenario: Scenario) -> None:
    arbiter, outcome, _ = played(scenario, policy)
    if not policy.startswith("chaos"):
        assert set(outcome.finished) == {job for job, _ in scenario.work}
        assert not arbiter.state.leases
        assert set(arbiter.state.names.outcomes.values()) <= {"finished"}


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_the_same_seed_gives_equal_decisions_and_a_replay_gives_the_live_state(policy: str, scenario: Scenario) -> None:
    arbiter, _, journal = played(scenario, policy)
    again, _, second = played(scenario, policy)
    assert save_state(arbiter.state) == save_state(again.state)
    assert len(journal) == len(second)
    folded = Arbiter(scenario.cluster, POLICIES[policy](), fifo(), seed=scenario.seed)
    for position, (now, events, decision) in enumerate(journal):
        folded.replay(Seconds(now), events, decision)
        if position == len(journal) // 2:
            fresh = Arbiter(scenario.cluster, POLICIES[policy](), fifo())
            fresh.load(folded.save())
            assert fresh.save() == folded.save()
            folded = fresh
    assert folded.save() == arbiter.save()


@pytest.mark.parametrize("policy", ["fifo, leases", "las, preemptive", "chaos of jobs"])
@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios())
def test_starts_planned_in_one_pass_equal_those_of_the_planner(policy: str, scenario: Scenario) -> None:
    no_menus = Menus(curve=np.empty(0, np.int32), points=curve_points(np.empty(0, np.int32), np.empty(0, np.int64)))

    def compared(state: State, answers: Any, amount: Grants, rounds: Rounds) -> list[Transition] | None:
        found = starts(state, answers, amount, rounds)
        if found is not None:
            planner = Planner(state, no_menus, answers, (amount, {}), rounds)
            assert [repr(order) for order in planner.run()] == [repr(order) for order in found]
            assert not planner.renewals
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eunomia.round.round.starts", compared)
        played(scenario, policy)


def test_gpus_that_an_app_returns_are_granted_again() -> None:
    stages = POLICIES["fifo, leases"]()
    arbiter = Arbiter(Cluster.parse("1x2 V100"), stages, fifo())
    script: list[tuple[float, Event]] = []
    for name in ("ana", "ben"):
        script.append((0.0, AppArrived(app=AppId(name), user=UserId(name), divides=False)))
        script.append((0.0, JobAdded(job=JobId(f"{name}/0"), app=AppId(name), least=2, most=2)))
    script.append((3.0, GpusReturned(app=AppId("ana"), gpus=(0,))))
    outcome = Drive(arbiter, work={JobId("ana/0"): 20.0, JobId("ben/0"): 20.0}).run(script)
    # A gang that needs both and gives one back gives back both; fifo serves ana first again, and its work counts.
    assert outcome.finished == {"ana/0": 10.0, "ben/0": 20.0}


def test_a_job_that_returns_one_gpu_and_can_do_without_it_shrinks() -> None:
    arbiter = Arbiter(Cluster.parse("1x3 V100"), POLICIES["fifo, leases"](), fifo())
    job = JobAdded(job=JobId("ana/0"), app=AppId("ana"), least=2, most=3)
    decision = arbiter.step(Seconds(0.0), (AppArrived(app=AppId("ana"), user=UserId("ana"), divides=False), job))
    (order,) = decision.transitions
    arbiter.step(Seconds(1.0), (Started(lease=order.lease, epoch=order.epoch),))
    (order,) = arbiter.step(Seconds(2.0), (GpusReturned(app=AppId("ana"), gpus=(1,)),)).orders
    assert (order.kind, order.gpus.tolist(), order.leaving.tolist()) == (TransitionKind.SHRINK, [0, 2], [1])
    assert arbiter.view.jobs.state[0] == JobState.RUNNING, "it returns what it does not use, and makes steps meanwhile"
    arbiter.step(Seconds(2.5), (Resized(lease=order.lease, epoch=order.epoch, at=Seconds(2.5)),))
    (lease,) = arbiter.view.leases()
    assert lease.gpus.tolist() == [0, 2]
    assert lease.state is LeaseState.ACTIVE
    (order,) = arbiter.step(Seconds(3.0), (GpusReturned(app=AppId("ana"), gpus=(0,)),)).orders
    assert order.kind is TransitionKind.SUSPEND, "one is too few for its gang"
