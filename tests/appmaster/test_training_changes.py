"""The state machine of live changes: every state of three workers is visited, and planted mistakes are found."""

import time
from dataclasses import replace

import pytest
from tests.appmaster.changes_model import Explored, Rules, explore, start

from eunomia_appmaster.training.changes import Act, Decided, Member, Membership, MemberStage, repaired

TWO = ("a", "b")


def explored(members: tuple[str, ...], *, burst: int, capsys: pytest.CaptureFixture[str]) -> Explored:
    began = time.perf_counter()
    found = explore(start(members, burst=burst))
    with capsys.disabled():
        seconds = time.perf_counter() - began
        line = f"{len(members)} of 3 workers, {burst} orders, 1 death: {found.states} states, "
        print(f"{line}{found.transitions} transitions, {seconds:.1f} s")
    return found


@pytest.mark.parametrize("members", [("a",), TWO])
def test_one_order_and_a_death_lead_to_a_gang_that_makes_steps(
    members: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    found = explored(members, burst=1, capsys=capsys)
    assert found.faults == []
    assert found.states > 1000


@pytest.mark.slow
@pytest.mark.parametrize("burst", [2, 3])
@pytest.mark.parametrize("members", [("a",), TWO])
def test_a_burst_of_orders_and_a_death_lead_to_a_gang_that_makes_steps(
    members: tuple[str, ...], burst: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explored(members, burst=burst, capsys=capsys).faults == []


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
