"""Hyperband's brackets are the paper's, and its forecast counts every iteration once."""

import math

import pytest
from tuner_lab import Lab, make, search

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Speed, forecast
from eunomia_hpo_adapters.bracket import phase_sizes
from eunomia_hpo_adapters.hyperband import Hyperband, HyperbandOptions, bracket_sizes, largest_s, shares

TABLE = [
    [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
    [(34, 3), (11, 9), (3, 27), (1, 81)],
    [(15, 9), (5, 27), (1, 81)],
    [(8, 27), (2, 81)],
    [(5, 81)],
]
"""Trials and iterations of each bracket, s = 4 to 0, for R = 81 and eta = 3: Algorithm 1 of Li et al. 2018 by hand,
n = ceil(B / R * eta^s / (s + 1)) with B = 5 R, n_i = floor(n / eta^i), r_i = R / eta^(s - i)."""


def test_brackets_rungs_and_sizes_equal_those_of_the_paper() -> None:
    options = HyperbandOptions(min_iterations=1)
    assert largest_s(1, 81, 3) == 4
    assert bracket_sizes(5, 3) == [81, 34, 15, 8, 5]
    assert Hyperband.trials_by_default(options, 81) == 143
    tuner = Hyperband.create(search(143, max_iterations=81), options)
    assert [list(zip(bracket.sizes, bracket.ends, strict=True)) for bracket in tuner._brackets] == TABLE
    assert [len(bracket.members) for bracket in tuner._brackets] == [81, 34, 15, 8, 5]


def test_as_many_trials_reach_each_rung_as_in_the_table_of_the_paper() -> None:
    tuner = Hyperband.create(search(143, max_iterations=81), HyperbandOptions(min_iterations=1))
    entered: list[list[int]] = [[0] * len(row) for row in TABLE]
    bracket_of = {n: row for row, b in enumerate(tuner._brackets) for n in b.members}
    while runs := tuner.runs():
        for run in runs:
            row, level = bracket_of[run.trial], tuner.rung(run.trial)
            assert level is not None
            entered[row][level] += 1
            goal = run.stop_at or 81
            assert goal == TABLE[row][level][1]
            if run.stop_at is None:
                tuner.on_finished(run.trial, goal, 1.0 / run.trial)
            else:
                tuner.on_paused(run.trial, goal, 1.0 / run.trial)
    assert entered == [[count for count, _ in row] for row in TABLE]
    assert tuner.is_done()
    assert tuner.best() == 1


def test_the_forecast_of_hyperband_sums_the_iterations_of_the_table_of_the_paper() -> None:
    tuner = Hyperband.create(search(143, max_iterations=81), HyperbandOptions(min_iterations=1, demand="full"))
    predicted = forecast(tuner, {}, {}, otherwise=Speed(seconds_per_iteration=2.0))
    assert predicted is not None
    by_hand = sum(
        count * (end - (row[level - 1][1] if level else 0)) for row in TABLE for level, (count, end) in enumerate(row)
    )
    assert predicted.total_gpu_seconds == 2.0 * by_hand
    assert len(predicted.phases) == 5
    assert [len(phase.jobs) for phase in predicted.phases] == [
        143,
        34 + 27 + 15 + 8 + 5,
        9 + 11 + 15 + 8 + 5,
        3 + 3 + 5 + 8 + 5,
        10,
    ]
    assert sum(max(job.iterations_left for job in phase.jobs) for phase in predicted.phases) == 81
    assert predicted.most == 143 * 4


def test_the_forecast_of_a_running_search_is_its_remaining_work() -> None:
    tuner = make("hyperband", {"min_iterations": 16, "reduction_factor": 2}, search(10))
    assert [(run.trial, run.stop_at) for run in tuner.runs()] == [
        *((n, 16) for n in (1, 2, 3, 4)), *((n, 32) for n in (5, 6, 7)), *((n, None) for n in (8, 9, 10)),
    ]  # fmt: skip
    for trial in (1, 2, 3, 4):
        tuner.on_paused(trial, 16, trial / 10)
    done = dict.fromkeys((1, 2, 3, 4), 16.0) | {8: 40.0}
    phases = [[(job.trial, job.iterations_left) for job in tuner.jobs_in_phase(n, done)] for n in range(3)]
    assert sorted(phases[0], key=str) == sorted(
        [(3, 16), (4, 16), (5, 16), (6, 16), (7, 16), (8, 24), (9, 16), (10, 16)], key=str
    )
    assert sorted(phases[1], key=str) == sorted([(5, 16), (6, 16), (7, 16), (8, 0), (9, 16), (10, 16)], key=str)
    assert sorted(phases[2], key=str) == sorted([(None, 32), (None, 32), (8, 0), (9, 32), (10, 32)], key=str)


def test_trials_are_divided_among_the_brackets_in_the_proportions_of_the_paper() -> None:
    assert shares(143, [81, 34, 15, 8, 5]) == [81, 34, 15, 8, 5]
    assert shares(12, [9, 5, 3]) == [6, 4, 2]
    assert shares(3, [9, 5, 3]) == [1, 1, 1]
    for trials in range(5, 200):
        given = shares(trials, [81, 34, 15, 8, 5])
        assert sum(given) == trials and min(given) >= 1 and given == sorted(given, reverse=True)


def test_a_bracket_with_few_trials_has_no_rung_without_a_promotion() -> None:
    tuner = Hyperband.create(search(5, max_iterations=81), HyperbandOptions(min_iterations=9))
    assert [(bracket.sizes, bracket.ends) for bracket in tuner._brackets] == [
        ([3, 1], (9, 81)),
        ([1], (81,)),
        ([1], (81,)),
    ]
    lab = Lab(make("hyperband", {"min_iterations": 9}, search(5)), search(5), 3, failing=0.0, nan=0.0)
    while lab.step():
        pass
    assert len([at for at in lab.done.values() if at == 64]) == 3


@pytest.mark.parametrize(
    ("trials", "options", "message"),
    [
        (9, {"min_iterations": 30}, "min_iterations must be at most max_iterations / reduction_factor, 21, but got 30"),
        (2, {"min_iterations": 4}, "trials must be at least one for each of hyperband's 3 brackets, but got 2"),
        (1, {"min_iterations": 4}, "trials must be at least 2 for hyperband, but got 1"),
    ],
)
def test_options_that_do_not_fit_the_search_are_refused(trials: int, options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make("hyperband", options, search(trials))
    assert str(caught.value) == message


def test_successive_halving_from_the_first_rung_equals_the_largest_bracket() -> None:
    assert phase_sizes(81, 3) == [81, 27, 9, 3, 1]
    options = {"min_iterations": 1, "reduction_factor": 3}
    tuner = make("successive_halving", options, search(81, max_iterations=81))
    (bracket,) = tuner._brackets  # type: ignore[attr-defined]
    assert list(zip(bracket.sizes, bracket.ends, strict=True)) == TABLE[0]
    nine = make("successive_halving", options, search(9, max_iterations=9))
    (bracket,) = nine._brackets  # type: ignore[attr-defined]
    # The example of Li et al. 2020 (ASHA), Figure 1: n = 9, r = 1, R = 9, eta = 3.
    assert list(zip(bracket.sizes, bracket.ends, strict=True)) == [(9, 1), (3, 3), (1, 9)]
    assert math.isclose(sum(n * r for n, r in zip(bracket.sizes, bracket.ends, strict=True)), 27)
