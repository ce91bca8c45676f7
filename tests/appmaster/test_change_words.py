"""What the events of a job say of a live change of its gang."""

import dataclasses

import pytest

from eunomia import Cluster, Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded, Started
from eunomia.units import AppId, Cause, JobId, Seconds, UserId
from eunomia_appmaster.master.change_words import pause_words, reason
from eunomia_appmaster.master.round_words import WORDS, decided
from eunomia_appmaster.master.slots import HeldLease, SlotBook
from eunomia_appmaster.runtimes.runtime import Entered
from eunomia_appmaster.service.lease_causes import LeaseCauses

ENTERED = Entered(generation=2, size=1, step=40, join_seconds=0.0, pause_seconds=0.35, at=1.7e9)


@pytest.mark.parametrize(
    ("at_least", "step_seconds", "words"),
    [
        (False, None, "stood still 350 ms"),
        (False, 0.1, "stood still 350 ms, 3.5 steps"),
        (True, 0.1, "stood still at least 350 ms, 3.5 steps"),
    ],
)
def test_a_job_that_may_have_stood_still_for_longer_stood_still_at_least(
    at_least: bool, step_seconds: float | None, words: str
) -> None:
    assert pause_words(dataclasses.replace(ENTERED, at_least=at_least), step_seconds) == words


CAUSES = ("freed", "left")


def test_the_reason_of_a_change_names_the_round_that_decided_it() -> None:
    lease = HeldLease(id=1, epoch=3, job=1, slots={}, ends_at=None)
    assert reason(lost=(), lease=lease, own=2) == "its lease has 2 slots"
    one = dataclasses.replace(lease, causes=CAUSES)
    words = "its lease has 1 slot, decided when a slot became free; an app or a job ended"
    assert reason(lost=(), lease=one, own=1) == words
    assert reason(lost=("a",), lease=one, own=1) == "a worker is lost"
    assert reason(lost=(), lease=dataclasses.replace(one, probe_iterations=20), own=1) == "its rate is measured"
    assert reason(lost=(), lease=None, own=0) == "its app divides its slots in another way"


def test_a_lease_that_is_not_measured_any_more_says_so() -> None:
    book = SlotBook()
    measured = HeldLease(id=1, epoch=3, job=1, slots={}, ends_at=None, probe_iterations=20)
    for lease in (measured, dataclasses.replace(measured, epoch=4, probe_iterations=None)):
        book.grant(lease)
    assert reason(lost=(), lease=book.of_job(1), own=4) == "its rate has been measured, and its lease has 4 slots"


def test_every_cause_of_a_round_has_words_and_an_unknown_one_none() -> None:
    assert set(WORDS) == set(Cause)
    assert decided(["of a later version"]) == ""


def test_a_revoked_slot_keeps_the_causes_of_the_round_that_revoked_it() -> None:
    book = SlotBook()
    book.lose([0, 1], 3, CAUSES)
    book.lose([1], 2, ["arrived"])
    assert (book.gone_for([1]), book.gone_for([2])) == (CAUSES, ())
    book.lose([1], 4)
    assert book.gone_for([1]) == (), "the app gave it back"


def test_the_arbiter_keeps_the_causes_of_a_leases_last_change() -> None:
    cluster = Cluster.parse("1x4 V100")
    arbiter = Arbiter(cluster, Profile.load("max_min").stages(cluster), Profile.fallback().stages(cluster))
    causes = LeaseCauses()
    orders = {}
    for now, name in ((0.0, "long"), (1.0, "short")):
        added = JobAdded(job=JobId(f"{name}/1"), app=AppId(name), least=1, most=4)
        decision = arbiter.step(Seconds(now), (AppArrived(app=AppId(name), user=UserId(name), divides=False), added))
        causes.note(decision)
        orders |= {order.kind.value: order for order in decision.transitions}
        for order in decision.transitions:
            arbiter.step(Seconds(now), (Started(lease=order.lease, epoch=order.epoch),))
    shrink = orders["shrink"]
    assert causes.of(shrink.lease, shrink.epoch) == causes.of(shrink.lease, shrink.fence) == ("arrived",)
    assert causes.of(shrink.lease, shrink.epoch + 1) == ()
