"""Algorithm 1 of AFS: both stages, the order of the scan, and the shorter way to the same sizes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia_plugins.afs import compiled
from eunomia_plugins.afs.compiled import fast_raised
from eunomia_plugins.afs.prefixes import Raising
from eunomia_plugins.afs.shares import Ladder, Ladders, first_sizes, raised
from strength import examples

HOUR = 3600.0


def ladder(work: float, *speeds: float) -> Ladder:
    """Sizes 1, 2, 3, ... with these speeds."""
    return Ladder(list(range(1, len(speeds) + 1)), [work / speed for speed in speeds])


def sizes_of(ladders: list[Ladder], gpus: int, *, known: bool = True, whole: bool = True) -> list[int]:
    """Both stages."""
    steps = first_sizes([each.sizes[0] if each.sizes else 0 for each in ladders], gpus)
    left = gpus - sum(each.sizes[0] for each, step in zip(ladders, steps, strict=True) if step == 0)
    found = raised(ladders, steps, left, known=known) if whole else Raising(ladders, steps, left, known=known).run()
    return [each.sizes[step] if step >= 0 else 0 for each, step in zip(ladders, found, strict=True)]


LADDERS = st.lists(
    st.builds(
        lambda work, start, gaps, gains: Ladder(
            list(itertools.accumulate(gaps, initial=start)),
            [work / speed for speed in itertools.accumulate(gains, initial=1.0)],
        ),
        st.sampled_from([1.0, 2.0, 3.0, 8.0, 100.0]) | st.floats(0.1, 1e4),
        st.integers(1, 3),
        st.lists(st.sampled_from([1, 1, 1, 2, 4]), max_size=6),
        st.lists(st.sampled_from([1.0, 0.5, 0.1]) | st.floats(0.01, 2.0), min_size=6, max_size=6),
    ),
    max_size=9,
)


@given(LADDERS, st.integers(0, 30), st.booleans())
@settings(max_examples=examples(400), deadline=None)
def test_a_scan_of_prefixes_gives_the_same_sizes_as_the_whole_scan(made: list[Ladder], gpus: int, known: bool) -> None:
    ladders = [Ladder(each.sizes[: len(each.seconds)], each.seconds[: len(each.sizes)]) for each in made]
    sizes = sizes_of(ladders, gpus, known=known)
    assert sizes_of(ladders, gpus, known=known, whole=False) == sizes
    assert sum(sizes) <= gpus


def random_ladders(luck: np.random.Generator) -> list[Ladder]:
    """Up to 40 jobs with up to 12 sizes; speeds and lengths from few values, so that ties are frequent."""
    made = []
    for _ in range(int(luck.integers(0, 40))):
        sizes = np.cumsum(luck.choice([1, 1, 1, 2, 4], int(luck.integers(1, 12))))
        speeds = 1.0 + np.cumsum(luck.choice([0.1, 0.5, 1.0], sizes.size))
        made.append(
            Ladder(sizes.tolist(), (luck.choice([0.0, 1.0, 8.0, 100.0, luck.uniform(0.1, 9)]) / speeds).tolist())
        )
    return made


def test_compiled_code_gives_the_same_sizes_as_the_plain_loop() -> None:
    """Random instances, with and without known lengths."""
    pytest.importorskip("numba")
    luck = np.random.default_rng(4)
    assert compiled.compiled() is not None
    for number in range(examples(1000)):
        ladders, gpus, known = random_ladders(luck), int(luck.integers(0, 300)), number % 2 == 0
        steps = first_sizes([each.sizes[0] for each in ladders], gpus)
        left = gpus - sum(each.sizes[0] for each, step in zip(ladders, steps, strict=True) if step == 0)
        expected = raised(ladders, steps, left, known=known)
        assert fast_raised(Ladders.of(ladders), steps, left, known=known, rounds=compiled.OFTEN) == expected
        assert Raising(ladders, steps, left, known=known).run() == expected


def test_job_curves_converted_to_columns_keep_their_rows() -> None:
    made = [ladder(2.0, 1.0, 1.5), Ladder([], []), Ladder([4], [1.0])]
    columns = Ladders.of(made)
    assert columns.each() == made
    assert columns.smallest() == [1, 0, 4]
    assert columns.take(np.array([2, 1, 0])).each() == made[::-1]


@pytest.mark.parametrize("known", [True, False])
def test_the_two_jobs_of_appendix_a_get_one_gpu_each(known: bool) -> None:
    """Appendix A's jobs of 2 h on one GPU, 1 h and 1.5 h on two: stage one gives each a GPU."""
    jobs = [ladder(2 * HOUR, 1.0, 2.0), ladder(2 * HOUR, 1.0, 4 / 3)]
    assert sizes_of(jobs, 2, known=known) == [1, 1]
    assert sizes_of(jobs, 1, known=known) == [1, 0]
    # A third GPU speeds the first job up more, as a part of its new speed and as a part of its old one.
    assert sizes_of(jobs, 3, known=known) == [2, 1]


def test_a_short_job_with_linear_speedup_does_not_get_both_gpus() -> None:
    """(3) alone prefers a second GPU for the shorter job to a first one for the longer; stage one comes before it."""
    short, long = ladder(1.0, 1.0, 2.0), ladder(10.0, 1.0, 2.0)
    assert sizes_of([short, long], 2) == [1, 1]
    assert sizes_of([short, long], 3) == [2, 1]


def test_in_a_cycle_of_preferences_the_order_of_the_scan_decides() -> None:
    """Speedups 7/5, 8/5 and 2 from the shortest job to the longest: each job comes before the next, the last before
    the first."""
    jobs = [ladder(1.0, 5.0, 7.0), ladder(2.0, 5.0, 8.0), ladder(4.0, 5.0, 10.0)]
    winners = set()
    for order in itertools.permutations(range(3)):
        sizes = sizes_of([jobs[at] for at in order], 4)
        winners.add(order[sizes.index(2)])
    assert len(winners) > 1


def test_without_known_lengths_the_earlier_job_of_the_scan_is_favoured() -> None:
    """The shorter job has to gain less to keep its place; without lengths, the job that was scanned earlier has."""
    short, long = ladder(1.0, 1.0, 1.5), ladder(9.0, 1.0, 1.9)
    # Longer: 0.9 / 1.9 = 0.47; shorter: 0.5.
    assert sizes_of([short, long], 3, known=True) == [2, 1]
    assert sizes_of([short, long], 3, known=False) == [2, 1]
    # As the scan's first, the longer job keeps its place: 0.5 / 1.5 is no more than 0.9.
    assert sizes_of([long, short], 3, known=False) == [2, 1]
    assert sizes_of([long, short], 3, known=True) == [1, 2]


@pytest.mark.parametrize("known", [True, False])
def test_a_job_with_no_work_left_keeps_its_smallest_size(known: bool) -> None:
    done, other = Ladder([1, 2], [0.0, 0.0]), Ladder([1, 2], [9.0, 6.0])
    for ladders, sizes in (([done, other], [0, 1]), ([other, done], [1, 0])):
        assert raised(ladders, [0, 0], 1, known=known) == sizes
        assert Raising(ladders, [0, 0], 1, known=known).run() == sizes


def test_sizes_that_do_not_fit_are_skipped() -> None:
    wide, narrow = Ladder([1, 5], [100.0, 10.0]), ladder(1.0, 1.0, 1.1)
    assert sizes_of([narrow, wide], 4) == [2, 1]
    assert sizes_of([Ladder([4], [1.0]), narrow], 3) == [0, 2]
    assert sizes_of([Ladder([], [])], 3) == [0]
