"""Changes of size of running jobs, found in activities and leases: by a restart, live, and what is none."""

import pytest

from eunomia_testbed.metrics.size_changes import HeldSlot, Slot, Span, size_changes

A, B = ("m", 0), ("m", 1)
"""Two slots."""


def held(*rows: tuple[Slot, str | None, Span]) -> dict[Slot, list[HeldSlot]]:
    found: dict[Slot, list[HeldSlot]] = {}
    for slot, job, span in rows:
        found.setdefault(slot, []).append(HeldSlot(job=job, app="a", span=span))
    return found


def test_a_job_that_restarts_on_more_slots_stands_still_from_its_last_step_to_its_first_one() -> None:
    steps = {"a": [(A, (10, 40)), (A, (60, 90)), (B, (60, 90))]}
    (change,) = size_changes(steps, held((A, "a", (5, 95)), (B, "a", (35, 95))))
    assert (change.before, change.after, change.still) == (1, 2, (40, 60))
    assert change.lost == {A: (40, 60), B: (35, 60)}  # the new slot waits from its lease on


def test_a_job_that_shrinks_live_loses_its_slot_until_that_is_free() -> None:
    steps = {"a": [(A, (10, 90)), (B, (10, 40))]}
    leases = held((A, "a", (5, 95)), (B, "a", (5, 40)), (B, None, (40, 47)), (B, "b", (47, 60)))
    (change,) = size_changes(steps, leases)
    assert (change.before, change.after, change.still) == (2, 1, (40, 40))
    assert change.lost == {A: (40, 40), B: (40, 47)}


def test_a_move_that_keeps_a_slot_is_a_change() -> None:
    steps = {"a": [(A, (10, 40)), (A, (50, 90)), (B, (10, 40)), (("m", 2), (50, 90))]}
    leases = held((A, "a", (5, 95)), (B, "a", (5, 42)), (("m", 2), "a", (43, 95)))
    (change,) = size_changes(steps, leases)
    assert change.lost == {A: (40, 50), B: (40, 42), ("m", 2): (43, 50)}


def test_slots_that_a_job_keeps_while_it_is_measured_on_fewer_are_unused() -> None:
    # Measured on A from 40 to 70; the newcomer on B is there at 70, and the job stands still until 75.
    steps = {"a": [(A, (10, 70)), (A, (75, 90)), (B, (10, 40)), (B, (75, 90))]}
    leases = held((A, "a", (5, 95)), (B, "a", (5, 95)))
    first, second = size_changes(steps, leases)
    assert (first.lost, first.unused) == ({A: (40, 40)}, {B: (40, 75)})
    assert (second.lost, second.unused) == ({A: (70, 75)}, {})
    assert (second.before, second.after) == (1, 2)


@pytest.mark.parametrize(
    ("steps", "leases"),
    [
        # preempted, and started again on other slots
        ([(A, (10, 40)), (A, (60, 90)), (B, (60, 90))], [(A, "a", (5, 45)), (A, "a", (55, 95)), (B, "a", (55, 95))]),
        # stood still on the same slots
        ([(A, (10, 40)), (A, (60, 90))], [(A, "a", (5, 95))]),
        # moved away from all its slots
        ([(A, (10, 40)), (B, (60, 90))], [(A, "a", (5, 45)), (B, "a", (45, 95))]),
    ],
)
def test_what_keeps_no_slot_or_all_is_no_change(
    steps: list[tuple[Slot, Span]], leases: list[tuple[Slot, str | None, Span]]
) -> None:
    assert size_changes({"a": steps}, held(*leases)) == []
