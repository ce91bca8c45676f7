"""The state machine of live changes: every state of three workers is visited, and planted mistakes are found."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import pytest
from tests.appmaster.changes_model import Explored, Machine, Rules, explore, start
from tests.appmaster.deciding_model import DecidingMachine, begin
from tests.appmaster.repairing import repaired

from eunomia_appmaster.master.changes import Decision, What, Worker, decide
from eunomia_appmaster.master.changes import Membership as Generations
from eunomia_appmaster.training.changes import Act, Decided, Member, Membership, MemberStage

TWO, THREE = ("a", "b"), ("a", "b", "c")
MACHINES = {"any order": (start, Machine), "the app master's orders": (begin, DecidingMachine)}


def explored(orders: str, members: tuple[str, ...], *, burst: int, capsys: pytest.CaptureFixture[str]) -> Explored:
    first, machine = MACHINES[orders]
    began = time.perf_counter()
    found = explore(first(members, burst=burst), kind=machine)
    with capsys.disabled():
        seconds = time.perf_counter() - began
        line = f"{orders}: {len(members)} of 3 workers, {burst} orders, 1 death: {found.states} states, "
        print(f"{line}{found.transitions} transitions, {seconds:.1f} s")
    return found


@pytest.mark.parametrize("orders", MACHINES)
@pytest.mark.parametrize("members", [("a",), TWO, THREE])
def test_one_order_and_a_death_lead_to_a_gang_that_makes_steps(
    orders: str, members: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    found = explored(orders, members, burst=1, capsys=capsys)
    assert found.faults == []
    assert found.states > 1000


@pytest.mark.slow
@pytest.mark.parametrize("burst", [2, 3])
@pytest.mark.parametrize("members", [("a",), TWO])
def test_a_burst_of_orders_and_a_death_lead_to_a_gang_that_makes_steps(
    members: tuple[str, ...], burst: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explored("any order", members, burst=burst, capsys=capsys).faults == []


@pytest.mark.slow
@pytest.mark.parametrize("members", [("a",), TWO, THREE])
def test_two_changes_of_mind_of_the_app_master_and_a_death_lead_to_a_gang_that_makes_steps(
    members: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert explored("the app master's orders", members, burst=2, capsys=capsys).faults == []


def leaves_open(member: Member, outcome: Decided, present: tuple[str, ...]) -> tuple[Act, int]:
    """Do not abandon the generations between a worker's own and its target."""
    target = member.newest.generation if member.target is None else member.target.generation
    return replace(member, closed=target - 1).next_act(outcome, present)


def is_deaf(member: Member, change: Membership) -> Member:
    """Ignore a newer change while forming."""
    return member if member.stage in (MemberStage.FORMING, MemberStage.HOLDING) else member.hears(change)


MISTAKES = {
    "generations between are left open": (Rules(next_act=leaves_open), 2, "steps are lost"),
    "a change is not replaced while it forms": (Rules(hears=is_deaf), 1, "no way on"),
    "the state comes from the member that is behind": (Rules(source=min), 1, "steps are lost"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str) -> None:
    rules, burst, fault = MISTAKES[name]
    (found,) = explore(start(TWO, burst=burst), rules).faults
    assert found.startswith(fault)


Workers, Name = Mapping[str, Worker], Callable[[int], str]


def counts_the_dead(before: Generations, workers: Workers, wanted: Collection[int], name: Name) -> Decision:
    """Keep members that have died."""
    return decide(before, {each: replace(one, alive=True, leaves=False) for each, one in workers.items()}, wanted, name)


def misses_the_first_step(before: Generations, workers: Workers, wanted: Collection[int], name: Name) -> Decision:
    """Never process that a generation has made a step, so that its newcomers never count as having the state."""
    return decide(before, {each: replace(one, resized=-1) for each, one in workers.items()}, wanted, name)


def trusts_the_ordered(before: Generations, workers: Workers, wanted: Collection[int], name: Name) -> Decision:
    """Take every member of an ordered generation for one that has the state."""
    holders = replace(before.current, members=before.ordered.members)
    decision = decide(replace(before, current=holders), workers, wanted, name)
    if decision.what is What.ENTERED:
        return decision
    return replace(decision, membership=replace(decision.membership, current=before.current))


@pytest.mark.parametrize("mistake", [counts_the_dead, misses_the_first_step, trusts_the_ordered])
def test_a_mistake_planted_in_the_app_master_is_found(mistake: Callable[..., Decision]) -> None:
    class Mistaken(DecidingMachine):
        decides = staticmethod(mistake)

    (found,) = explore(begin(TWO, burst=1), kind=Mistaken).faults
    assert found.startswith("no way on")


def test_a_worker_leaves_only_when_the_others_go_on_without_it() -> None:
    member = Member.member_of("b", Membership(1, TWO), 7).hears(Membership(2, ("a",))).agrees(2)
    assert member.next_act(Decided.OPEN, ("a",)) == (Act.WAIT, 2)
    assert member.learns(2, Decided.FORMED).stage is MemberStage.LEFT
    back = member.learns(2, Decided.ABANDONED).hears(Membership(3, TWO))
    assert (back.stage, back.target, back.step) == (MemberStage.FORMING, Membership(3, TWO), 7)


def test_an_order_is_repaired_without_those_that_are_gone() -> None:
    newest = Membership(4, ("a", "b", "c"))
    assert repaired(newest, living=("a", "b", "c"), holders=("a",)) is None
    assert repaired(newest, living=("a", "b", "c"), holders=("a",), broken=True) == ("a", "b", "c")
    assert repaired(newest, living=("b", "c"), holders=("b",)) == ("b", "c")
    assert repaired(newest, living=("c", "d"), holders=("d",)) == ("d", "c")  # without d nobody has the state
    assert repaired(Membership(4, ("a",)), living=("c",), holders=("a",)) == ("c",)  # it may have been told in time
    assert repaired(newest, living=(), holders=("a",)) == ()
