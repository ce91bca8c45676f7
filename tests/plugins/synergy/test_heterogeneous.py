"""Synergy-Opt on three GPU types: the programme and repeated filling against brute force."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from eunomia.errors import InputError
from eunomia.units import Ints, Reals
from plugins.synergy.typed_programme import TypedJob, best, fair_rate, filled
from strength import examples

FASTER = (1.0, 1.6, 2.9)
"""Speeds of three GPU types."""


def drawn(seed: int, count: int) -> tuple[list[TypedJob], Reals]:
    """Jobs that gain or do not gain from CPUs, on machines of three types of few GPUs."""
    luck = np.random.default_rng(seed)
    gpus: Ints = luck.integers(1, 5, 3)
    room = np.column_stack([gpus, 3.0 * gpus, 60.0 * gpus]).astype(float)
    return [job(luck, gpus) for _ in range(count)], room


def job(luck: np.random.Generator, gpus: Ints) -> TypedJob:
    size, gain = int(luck.integers(1, 3)), float(luck.choice([0.0, 0.5, 1.0]))
    speed = np.array(FASTER) ** luck.uniform(0.2, 1.0)
    points = [(kind, cpus, memory) for kind in range(3) for cpus in (1.0, 3.0, 6.0) for memory in (20.0, 60.0)]
    kind, cpus, memory = (np.array(column) for column in zip(*points, strict=True))
    rate = speed[kind] * (cpus / 3.0) ** gain * np.where(memory < 60.0, luck.uniform(0.5, 1.0), 1.0)
    return TypedJob(size, kind, cpus * size, memory * size, rate, fair_rate(gpus, speed))


def needs(one: TypedJob, point: int) -> Reals:
    return np.array([one.gpus, one.cpus[point], one.memory_gib[point]])


def feasible(jobs: Sequence[TypedJob], room: Reals) -> Iterator[tuple[int, float]]:
    """Jobs that run and the sum of their rates over fair rates, of every choice that fits."""
    allowed = [[None, *np.flatnonzero(one.rate >= one.fair * (1.0 - 1e-9)).tolist()] for one in jobs]
    for choice in itertools.product(*allowed):
        left = room.copy()
        for one, point in zip(jobs, choice, strict=True):
            if point is not None:
                left[one.gpu_type[point]] -= needs(one, point)
        if (left >= -1e-6).all():
            run = [(one, point) for one, point in zip(jobs, choice, strict=True) if point is not None]
            yield len(run), sum(float(one.rate[point] / one.fair) for one, point in run)


@pytest.mark.parametrize("seed", range(examples(12)))
def test_the_programme_finds_the_best_of_all_choices(seed: int) -> None:
    jobs, room = drawn(seed, 4)
    choices = best(jobs, room)
    value = sum(jobs[choice.job].rate[choice.point] / jobs[choice.job].fair for choice in choices)
    count, most = max((count, round(value, 6)) for count, value in feasible(jobs, room))
    assert len(choices) == count
    assert float(value) == pytest.approx(most, abs=1e-5)
    assert len({choice.job for choice in choices}) == len(choices)


@pytest.mark.parametrize("seed", range(examples(12)))
def test_filling_leaves_no_job_that_fits_and_none_below_its_fair_rate(seed: int) -> None:
    jobs, room = drawn(100 + seed, 9)
    found = filled(jobs, room)
    used = np.zeros_like(room)
    for number, point in found.choices:
        assert jobs[number].rate[point] >= jobs[number].fair * (1.0 - 1e-9)
        used[jobs[number].gpu_type[point]] += needs(jobs[number], point)
    assert found.left == pytest.approx(room - used)
    assert (used <= room + 1e-6).all()
    for number in set(range(len(jobs))) - {choice.job for choice in found.choices}:
        assert max(count for count, _ in feasible([jobs[number]], found.left)) == 0


def test_a_second_programme_uses_gpus_left_by_a_job_that_cannot_be_split() -> None:
    room = np.array([[2.0, 6.0, 100.0], [1.0, 3.0, 50.0], [1.0, 3.0, 50.0]])

    def on_every_type(gpus: int) -> TypedJob:
        return TypedJob(gpus, np.arange(3), np.full(3, 3.0 * gpus), np.full(3, 50.0 * gpus), np.ones(3), 1.0)

    found = filled([on_every_type(2), on_every_type(2), on_every_type(1), on_every_type(1)], room)
    assert [(choice.job, choice.point) for choice in found.choices[:1]] in ([(0, 0)], [(1, 0)])
    assert {choice.job for choice in found.choices[1:]} == {2, 3}
    assert found.programmes == 2
    assert found.left[:, 0].sum() == 0.0


def test_a_fair_rate_is_that_of_an_equal_share_of_time_on_every_gpu() -> None:
    assert fair_rate(np.array([2, 1, 1]), np.array([1.0, 2.0, 4.0])) == 2.0


def test_bad_jobs_are_refused() -> None:
    room, one = np.ones((1, 3)), np.ones(1)
    for gpus, gpu_type, fair, said in (
        (1, 0, 0.0, "the fair rate of a job must be above 0, but got 0.0 (job 0)"),
        (0, 0, 1.0, "a job must have at least 1 GPU, but got 0 (job 0)"),
        (1, 2, 1.0, "a point must be on one of the 1 GPU types, counted from 0, but got [2] (job 0)"),
    ):
        with pytest.raises(InputError) as refused:
            filled([TypedJob(gpus, np.array([gpu_type]), one, one, one, fair)], room)
        assert str(refused.value) == said
