from hypothesis import given
from hypothesis import strategies as st

from eunomia_appmaster.master.division import Wish, divide, extra_slots, unused

FOUR = {0: "a", 1: "a", 2: "b", 3: "b"}


def wish(job: int, least: int = 1, most: int = 1, on: tuple[int, ...] = ()) -> Wish:
    return Wish(job=job, least=least, most=most, runs_on=on)


def test_running_jobs_stay_and_free_slots_go_in_order() -> None:
    free = {gpu: machine for gpu, machine in FOUR.items() if gpu != 2}
    wishes = [wish(1), wish(2, on=(2,)), wish(3), wish(4), wish(5)]
    assert divide(wishes, free) == {2: (2,), 1: (3,), 3: (0,), 4: (1,)}


def test_many_start_before_one_grows() -> None:
    assert divide([wish(1, 1, 4), wish(2, 1, 4)], FOUR) == {1: (0, 1), 2: (2, 3)}
    assert divide([wish(1, 1, 4)], FOUR) == {1: (0, 1, 2, 3)}
    assert {job: len(gpus) for job, gpus in divide([wish(1, 1, 4), wish(2), wish(3)], FOUR).items()} == {
        1: 2,
        2: 1,
        3: 1,
    }


def test_a_gang_runs_whole_or_not_at_all_and_blocks_no_other_job() -> None:
    assert divide([wish(1, 3, 3), wish(2, 2, 2)], {0: "a", 2: "b"}) == {2: (0, 2)}
    assert divide([wish(1, 3, 3)], {0: "a", 2: "b"}) == {}


def test_a_gang_stays_on_one_machine_where_it_can() -> None:
    free = {0: "a", 4: "b", 5: "b", 8: "c", 9: "c", 10: "c"}
    assert divide([wish(1, 2, 2)], free) == {1: (4, 5)}
    assert divide([wish(1, 3, 3), wish(2)], free) == {1: (8, 9, 10), 2: (0,)}
    assert divide([wish(1, 5, 5)], free) == {1: (4, 5, 8, 9, 10)}


wishes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), max_size=8)


@given(wishes, st.sets(st.integers(0, 11), max_size=12))
def test_divisions_are_whole_and_disjoint_and_leave_no_job_out(sizes: list[tuple[int, int]], gpus: set[int]) -> None:
    free = {gpu: f"m{gpu // 4}" for gpu in gpus}
    asked = [wish(number, least, least + extra) for number, (least, extra) in enumerate(sizes)]
    divided = divide(asked, free)
    named = [gpu for each in divided.values() for gpu in each]
    assert len(named) == len(set(named))
    assert set(named) <= gpus
    left = unused(free, divided)
    for one in asked:
        size = len(divided.get(one.job, ()))
        assert size == 0 or one.least <= size <= one.most
        assert size > 0 or one.least > len(left)  # no job waits that fits on the rest
        assert not left or size in (0, one.most)  # nothing lies idle that would widen a newcomer


def test_widening_a_running_job_must_pay() -> None:
    assert extra_slots(size=1, most=4, free=1, seconds_left=60.0, restart_seconds=2.0) == 1
    assert extra_slots(size=1, most=4, free=3, seconds_left=60.0, restart_seconds=2.0) == 3
    assert extra_slots(size=1, most=4, free=1, seconds_left=7.0, restart_seconds=2.0) == 0
    assert extra_slots(size=4, most=4, free=1, seconds_left=600.0, restart_seconds=2.0) == 0
