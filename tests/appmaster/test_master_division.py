import math

from hypothesis import given
from hypothesis import strategies as st

from eunomia.model.cluster import Cluster, Machine
from eunomia.model.forecasts import ASSUMED_SLOWDOWN
from eunomia.units import Locality
from eunomia_appmaster.master.division import Wish, divide, extra_slots, unused, widening

FOUR = Cluster.parse("2x2 V100")
THREE_OF_FOUR = Cluster.parse("3x4 V100")
TWO_RACKS = Cluster.build([Machine(name=name, gpu_type="V100", gpus=4, rack=name) for name in ("a", "b")])
FAR = (1.0, 1.0, 1.1, 11.9)
"""S of a job that hardly runs across racks."""


def wish(
    job: int,
    least: int = 1,
    most: int = 1,
    on: tuple[int, ...] = (),
    slowdown: tuple[float, ...] = ASSUMED_SLOWDOWN,
    *,
    across_nodes: bool = True,
) -> Wish:
    island, machine, rack, cluster = slowdown
    by_locality = (island, machine, rack, cluster)
    return Wish(job=job, least=least, most=most, runs_on=on, across_nodes=across_nodes, slowdown=by_locality)


def speed(gpus: tuple[int, ...], cluster: Cluster, slowdown: tuple[float, ...]) -> float:
    places = [(cluster.island[gpu], cluster.machine[gpu], cluster.rack[gpu], 0) for gpu in gpus]
    near = min(place for place in Locality if len({at[place] for at in places}) <= 1)
    return len(gpus) / slowdown[near]


def test_running_jobs_stay_and_free_gpus_are_given_out_in_order() -> None:
    wishes = [wish(1), wish(2, on=(2,)), wish(3), wish(4), wish(5)]
    assert divide(wishes, {0, 1, 3}, FOUR) == {2: (2,), 1: (3,), 3: (0,), 4: (1,)}


def test_waiting_jobs_start_before_any_job_gets_more_gpus() -> None:
    free = range(4)
    assert divide([wish(1, 1, 4), wish(2, 1, 4)], free, FOUR) == {1: (0, 1), 2: (2, 3)}
    assert divide([wish(1, 1, 4)], free, FOUR) == {1: (0, 1, 2, 3)}
    three = divide([wish(1, 1, 4), wish(2), wish(3)], free, FOUR)
    assert {job: len(gpus) for job, gpus in three.items()} == {1: 2, 2: 1, 3: 1}


def test_a_gang_runs_whole_or_not_at_all_and_blocks_no_other_job() -> None:
    assert divide([wish(1, 3, 3), wish(2, 2, 2)], {0, 2}, FOUR) == {2: (0, 2)}
    assert divide([wish(1, 3, 3)], {0, 2}, FOUR) == {}


def test_a_gang_stays_on_one_machine_if_it_fits() -> None:
    free = {0, 4, 5, 8, 9, 10}
    assert divide([wish(1, 2, 2)], free, THREE_OF_FOUR) == {1: (4, 5)}
    assert divide([wish(1, 3, 3), wish(2)], free, THREE_OF_FOUR) == {1: (8, 9, 10), 2: (0,)}
    assert divide([wish(1, 5, 5)], free, THREE_OF_FOUR) == {1: (4, 5, 8, 9, 10)}


def test_a_starting_job_does_not_take_gpus_that_would_slow_it_down() -> None:
    free = {0, 1, 2, 4}
    assert divide([wish(1, 1, 4, slowdown=FAR)], free, TWO_RACKS) == {1: (0, 1, 2)}
    assert divide([wish(1, 1, 4, slowdown=(1.0, 1.0, 1.0, 1.0))], free, TWO_RACKS) == {1: (0, 1, 2, 4)}
    assert divide([wish(1, 4, 4, slowdown=FAR)], free, TWO_RACKS) == {1: (0, 1, 2, 4)}


def test_gpus_that_would_slow_one_job_down_go_to_the_next() -> None:
    wishes = [wish(1, 2, 4, slowdown=FAR), wish(2, 1, 4, slowdown=FAR)]
    assert divide(wishes, {0, 1, 2, 3, 4}, TWO_RACKS) == {1: (0, 1, 2, 3), 2: (4,)}


wishes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), max_size=8)
slowdowns = st.tuples(*[st.floats(1.0, 12.0)] * 4).map(lambda drawn: (1.0, *sorted(drawn)[1:]))


@given(wishes, st.sets(st.integers(0, 11), max_size=12), slowdowns)
def test_divisions_are_disjoint_and_leave_no_job_waiting_that_fits(
    sizes: list[tuple[int, int]], free: set[int], slowdown: tuple[float, ...]
) -> None:
    asked = [wish(number, least, least + extra, slowdown=slowdown) for number, (least, extra) in enumerate(sizes)]
    divided = divide(asked, free, THREE_OF_FOUR)
    named = [gpu for each in divided.values() for gpu in each]
    assert len(named) == len(set(named))
    assert set(named) <= free
    left = unused(free, divided)
    for one in asked:
        gpus = divided.get(one.job, ())
        assert not gpus or one.least <= len(gpus) <= one.most
        assert gpus or one.least > len(left)  # no job waits that fits on the rest
        if gpus and left and len(gpus) < one.most:  # no GPU lies idle that would speed a starting job up
            for gpu in left:
                assert speed((*gpus, gpu), THREE_OF_FOUR, slowdown) <= speed(gpus, THREE_OF_FOUR, slowdown) + 1e-9


def widened(on: tuple[int, ...], free: set[int], seconds_left: float, slowdown: tuple[float, ...] = FAR) -> int:
    one = wish(1, 1, 4, on, slowdown)
    return len(widening(one, free, TWO_RACKS, seconds_left=seconds_left, restart_seconds=2.0))


def test_a_running_job_is_widened_only_if_that_saves_time() -> None:
    assert widened((0,), {1}, 60.0) == 1
    assert widened((0,), {1, 2, 3}, 60.0) == 3
    assert widened((0,), {1}, 7.0) == 0
    assert widened((0, 1, 2, 3), {4}, 600.0) == 0


def test_a_running_job_is_not_widened_to_gpus_that_slow_it_down() -> None:
    assert widened((0, 1, 2), {4}, math.inf) == 0
    assert widened((0, 1, 2), {4}, 600.0, (1.0, 1.0, 1.0, 1.0)) == 1
    assert widened((0, 1), {2, 4}, 600.0) == 1


def test_nearby_gpus_are_added_if_the_time_saved_exceeds_twice_the_restart() -> None:
    assert extra_slots(size=1, most=2, seconds_left=60.0, restart_seconds=2.0) == 1
    assert extra_slots(size=1, most=2, seconds_left=7.0, restart_seconds=2.0) == 0
    assert extra_slots(size=4, most=4, seconds_left=600.0, restart_seconds=2.0) == 0


def near(job: int, least: int, most: int, on: tuple[int, ...] = ()) -> Wish:
    return wish(job, least, most, on, (1.0, 1.0, 1.0, 1.0), across_nodes=False)


def test_a_gang_starts_on_one_node_and_takes_no_gpu_of_another() -> None:
    assert divide([near(1, 1, 4)], {0, 1, 2, 4}, TWO_RACKS) == {1: (0, 1, 2)}
    assert divide([near(1, 1, 4)], range(4), FOUR) == {1: (0, 1)}
    assert divide([near(1, 2, 4)], {0, 2, 3}, FOUR) == {1: (2, 3)}


def test_a_gang_whose_minimum_fits_no_node_starts_over_several_with_its_minimum() -> None:
    assert divide([near(1, 2, 4)], {0, 2}, FOUR) == {1: (0, 2)}
    assert divide([near(1, 3, 4)], range(4), FOUR) == {1: (0, 1, 2, 3)}
    assert divide([near(1, 3, 4), near(2, 1, 1)], range(4), FOUR) == {1: (0, 1, 2), 2: (3,)}


def test_a_running_gang_is_widened_only_on_its_own_nodes() -> None:
    def extra(one: Wish, free: set[int]) -> tuple[int, ...]:
        return widening(one, free, FOUR, seconds_left=600.0, restart_seconds=2.0)

    assert extra(near(1, 1, 4, (0,)), {2, 3}) == ()
    assert extra(near(1, 1, 4, (0,)), {1, 2, 3}) == (1,)
    assert extra(near(1, 2, 4, (0, 2)), {1, 3}) == (1, 3)
    assert extra(wish(1, 1, 4, (0,), (1.0, 1.0, 1.0, 1.0)), {1, 2, 3}) == (1, 2, 3)


def test_a_gang_may_span_several_machines_of_one_node() -> None:
    """A node with GPUs of two types is two machines of the cluster."""
    one_node = dict.fromkeys(range(4), "box")
    assert divide([near(1, 1, 4)], range(4), FOUR, one_node) == {1: (0, 1, 2, 3)}
