"""The state machine of live changes: which generation is ordered when, for leases, ends, and newcomers in any order."""

import dataclasses
import random
from collections.abc import Collection, Iterator

import pytest

from eunomia_appmaster.master.changes import Decision, Generation, Membership, What, Worker, decide, holders
from eunomia_appmaster.master.slot_failures import FIRST_PAUSE_SECONDS, WITHOUT_SECONDS, SlotFailures
from strength import examples


@dataclasses.dataclass
class Gang:
    """A gang whose workers a test plays by hand."""

    membership: Membership
    workers: dict[str, Worker]
    wanted: set[int]
    made: int = 0
    orders: list[Generation] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, *gpus: int) -> "Gang":
        members = tuple(f"w{gpu}" for gpu in gpus)
        workers = {f"w{gpu}": Worker(gpu=gpu) for gpu in gpus}
        return cls(Membership(current=Generation(number=0, members=members)), workers, set(gpus))

    def _name(self, gpu: int) -> str:
        self.made += 1
        return f"n{self.made}"

    def settle(self) -> list[What]:
        """Decide until there is nothing to do, as the app master does; returns what was decided."""
        found: list[What] = []
        while (decision := self._step()).what is not What.NOTHING:
            found.append(decision.what)
            assert len(found) < 20, "it never settles"
        return found

    def _step(self) -> Decision:
        before = set(self.workers)
        decision = decide(self.membership, self.workers, self.wanted, self._name)
        self._check(decision)
        self.membership = decision.membership
        if decision.what is What.PLAN:
            free = self.wanted - {worker.gpu for worker in self.workers.values() if worker.alive}
            new = [each for each in self.membership.newcomers if each not in before]
            self.workers |= {each: Worker(gpu=gpu) for each, gpu in zip(new, sorted(free), strict=True)}
        if decision.what is What.ORDER and self.membership.forming is not None:
            self.orders.append(self.membership.forming)
        for each in decision.given_up:
            self.workers.pop(each, None)
        return decision

    def _check(self, decision: Decision) -> None:
        before, after = self.membership, decision.membership
        assert after.highest >= before.highest
        assert after.ordered.number >= before.ordered.number
        assert not set(decision.given_up) & set(after.ordered.members)
        if decision.what is What.ORDER:
            numbers = {generation.number for generation in self.orders}
            assert after.ordered.number not in numbers, "no number is used twice"
            assert all(self.workers[each].alive for each in after.ordered.members)
            assert set(after.ordered.members) & set(before.current.members), "someone has the state"

    def change(self, container: str, **fields: object) -> None:
        self.workers[container] = dataclasses.replace(self.workers[container], **fields)  # type: ignore[arg-type]

    def enter(self) -> None:
        """Let rank 0 of the forming generation report its first step."""
        assert self.membership.forming is not None
        self.change(self.membership.forming.members[0], resized=self.membership.forming.number)

    @property
    def members(self) -> tuple[str, ...]:
        return self.membership.ordered.members


def test_a_gang_on_its_slots_is_left_alone() -> None:
    assert Gang.of(0, 1).settle() == []


def test_newcomers_join_once_all_of_them_are_ready() -> None:
    gang = Gang.of(0)
    gang.wanted = {0, 1, 2}
    assert gang.settle() == [What.PLAN]
    gang.change("n1", ready=True)
    assert gang.settle() == []
    gang.change("n2", ready=True)
    assert gang.settle() == [What.ORDER]
    assert gang.orders == [Generation(number=1, members=("w0", "n1", "n2"))]
    gang.enter()
    assert gang.settle() == [What.ENTERED]
    assert gang.membership.current == gang.orders[0]


def test_a_lost_slot_is_left_at_once() -> None:
    gang = Gang.of(0, 1, 2)
    gang.wanted = {0, 2}
    assert gang.settle() == [What.ORDER]
    assert gang.members == ("w0", "w2")


def test_a_gang_that_moves_leaves_first_and_grows_when_the_newcomer_is_ready() -> None:
    gang = Gang.of(0, 1)
    gang.wanted = {1, 2}
    assert gang.settle() == [What.ORDER, What.PLAN]
    assert gang.members == ("w1",)
    gang.change("n1", ready=True)
    gang.settle()
    assert gang.members == ("w1", "n1")
    assert [each.number for each in gang.orders] == [1, 2]


def test_a_newer_lease_replaces_a_change_before_its_newcomers_are_ready() -> None:
    gang = Gang.of(0)
    gang.wanted = {0, 1, 2}
    gang.settle()
    gang.wanted = {0, 1}
    assert gang.settle() == [What.PLAN]
    assert set(gang.workers) == {"w0", "n1"}, "the newcomer of the slot that is kept goes on"
    gang.wanted = {0}
    assert gang.settle() == [What.DROP]
    assert gang.orders == []
    assert set(gang.workers) == {"w0"}


def test_a_newer_lease_replaces_a_generation_that_forms() -> None:
    gang = Gang.of(0)
    gang.wanted = {0, 1}
    gang.settle()
    gang.change("n1", ready=True)
    gang.settle()
    gang.wanted = {0}
    assert gang.settle() == [What.ORDER]
    assert gang.orders[-1] == Generation(number=2, members=("w0",))


def test_a_dead_worker_is_left_out_at_once_and_its_slot_gets_a_newcomer_once_it_is_free() -> None:
    gang = Gang.of(0, 1)
    gang.change("w0", alive=False)
    assert gang.settle() == [What.ORDER, What.PLAN]
    assert gang.orders == [Generation(number=1, members=("w1",))]


def test_a_dead_worker_does_not_wait_for_newcomers() -> None:
    gang = Gang.of(0, 1)
    gang.wanted = {0, 1, 2}
    gang.settle()
    gang.change("w1", alive=False)
    gang.wanted = {0, 2}
    assert gang.settle() == [What.ORDER, What.PLAN]
    assert gang.members == ("w0",)
    gang.change("n1", ready=True)
    gang.settle()
    assert gang.members == ("w0", "n1")


def test_a_useless_newcomer_is_given_up_alone() -> None:
    gang = Gang.of(0)
    gang.wanted = {0, 1, 2}
    gang.settle()
    gang.change("n1", ready=True)
    gang.change("n2", useless=True)
    gang.wanted = {0, 1}
    assert gang.settle() == [What.PLAN, What.ORDER]
    assert gang.members == ("w0", "n1")


def test_the_next_number_is_above_one_that_only_a_launcher_knows() -> None:
    gang = Gang.of(0, 1)
    gang.change("w0", heard=7)
    assert gang.settle() == [What.ORDER]
    assert gang.orders == [Generation(number=8, members=("w0", "w1"))]
    assert gang.settle() == []


def test_a_group_that_failed_is_formed_again_under_the_next_number() -> None:
    gang = Gang.of(0, 1)
    gang.change("w1", broken=0)
    assert gang.settle() == [What.ORDER]
    assert gang.orders == [Generation(number=1, members=("w0", "w1"))]
    assert gang.settle() == []


def test_a_leaver_with_the_state_stays_if_only_newcomers_would_be_left() -> None:
    gang = Gang.of(0, 1)
    gang.wanted = {0, 1, 2}
    gang.settle()
    gang.change("n1", ready=True)
    gang.settle()
    gang.wanted = {0, 2}
    gang.settle()
    assert gang.members == ("w0", "n1")
    gang.change("w0", alive=False)
    gang.settle()
    assert gang.members == ("w1", "n1")
    gang.enter()
    gang.settle()
    assert gang.members == ("n1",)


def test_newcomers_without_anyone_that_has_the_state_are_not_ordered() -> None:
    gang = Gang.of(0)
    gang.wanted = {0, 1}
    gang.settle()
    gang.change("n1", ready=True)
    gang.settle()
    gang.change("w0", alive=False)
    assert gang.settle() == []


def test_with_nobody_left_nothing_is_ordered() -> None:
    gang = Gang.of(0)
    gang.change("w0", alive=False)
    assert gang.settle() == []


def test_a_membership_survives_in_json() -> None:
    gang = Gang.of(0, 1)
    gang.wanted = {1, 2}
    gang.settle()
    assert gang.membership.planned is not None
    assert Membership.from_json(gang.membership.to_json()) == gang.membership


def _events(gang: Gang, rng: random.Random) -> Iterator[tuple[str, Collection[str]]]:
    yield "lease", ()
    yield "die", [each for each, worker in gang.workers.items() if worker.alive]
    yield "ready", [each for each in gang.membership.newcomers if each in gang.workers]
    yield "useless", [each for each in gang.membership.newcomers if each in gang.workers]
    yield "enter", [] if gang.membership.forming is None else [gang.membership.forming.members[0]]


@pytest.mark.parametrize("seed", range(examples(20)))
def test_random_histories_use_no_number_twice_and_reach_the_last_lease(seed: int) -> None:
    rng = random.Random(seed)
    gang = Gang.of(0, 1)
    for _ in range(60):
        kind, whom = rng.choice([(kind, whom) for kind, whom in _events(gang, rng) if kind == "lease" or whom])
        each = rng.choice(sorted(whom)) if whom else ""
        if kind == "lease":
            gang.wanted = set(rng.sample(range(4), rng.randint(1, 4)))
        elif kind == "enter":
            gang.enter()
        elif kind == "die":
            gang.change(each, alive=False)
        else:
            gang.change(each, **{kind: True})
            if kind == "useless":
                gang.change(each, alive=False)
        gang.settle()
    alive = [each for each in gang.members if gang.workers[each].alive]
    have = holders(gang.membership, gang.workers)
    if not have or not any(gang.workers[each].gpu in gang.wanted for each in alive):
        return
    for _ in range(4):
        for each in gang.membership.newcomers:
            gang.change(each, ready=True)
        for each, worker in list(gang.workers.items()):
            if each not in gang.members and each not in gang.membership.newcomers:
                gang.workers[each] = dataclasses.replace(worker, alive=False)
        gang.settle()
        if gang.membership.forming is not None:
            gang.enter()
        gang.settle()
    assert {gang.workers[each].gpu for each in gang.membership.current.members} == gang.wanted


def test_a_slot_on_which_two_workers_failed_gets_one_more_after_a_time() -> None:
    failures, place, other = SlotFailures(), (1, 0, 7), (1, 0, 8)
    failures.count(place, 0.0)
    assert failures.has(place)
    assert not failures.is_given_up(place, 1.0)
    failures.count(place, 2.0)
    assert failures.is_given_up(place, 1.0 + WITHOUT_SECONDS)
    assert not failures.is_given_up(place, 2.0 + WITHOUT_SECONDS)
    assert failures.has(place), "what fails there next counts at once"
    failures.count(place, 3.0 + WITHOUT_SECONDS)
    assert failures.is_given_up(place, 4.0 + WITHOUT_SECONDS)
    assert not failures.is_given_up(other, 4.0), "the next lease of the slot begins with no failure"
    failures.count(other, 5.0, for_good=True)
    assert failures.is_given_up(other, 6.0)


def test_a_slot_is_given_back_again_after_growing_pauses_only() -> None:
    failures, at = SlotFailures(), 0.0
    for lease, pause in enumerate((0.0, FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS)):
        place = (1, 0, lease)
        failures.count(place, at)
        assert not failures.may_be_given_back(place, at + pause), "one failure may be chance"
        failures.count(place, at)
        assert failures.may_be_given_back(place, at + pause)
        assert pause == 0.0 or not failures.may_be_given_back(place, at + pause - 1.0)
        failures.gives_back(place)
        at += pause + 1.0
    for _ in range(20):
        failures.gives_back(place)
    assert failures.may_be_given_back(place, at + WITHOUT_SECONDS / 2.0), "before it is tried once more"
    failures.count((1, 1, 0), at, for_good=True)
    assert failures.may_be_given_back((1, 1, 0), at)
