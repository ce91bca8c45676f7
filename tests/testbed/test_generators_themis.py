"""Themis' workloads 1 and 2: distributions, mix, work of an app, searches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.units import Locality
from eunomia_hpo_adapters.successive_halving import SuccessiveHalvingOptions
from eunomia_testbed.generators import generate_workload, generated_speeds
from eunomia_testbed.generators.searches import halving_iterations, losses
from eunomia_testbed.generators.themis_facts import (
    GPU_SECONDS_PER_APP,
    GPUS_PER_JOB,
    JOBS_PER_APP,
    MIX,
    MODELS,
    NETWORK_INTENSIVE_MODELS,
)
from eunomia_testbed.performance import Setting
from eunomia_testbed.simulator import simulate_one
from strength import examples

APPS = 2000
TOLERANCE = 1.63 / APPS**0.5
"""Kolmogorov and Smirnov's distance at 1 % for so many draws."""


@pytest.fixture(scope="module", params=[1, 2])
def drawn(request):
    number = request.param
    return number, generate_workload(f"themis{number}", {"apps": APPS, "search": "none"}, 5)


def per_app(workload):
    return np.bincount(workload.jobs.app, minlength=len(workload.apps.id))


def distance(sample, steps):
    ordered = np.sort(sample.astype(float))
    expected = steps.cdf(ordered)
    highest, lowest = np.arange(1, ordered.size + 1) / ordered.size, np.arange(ordered.size) / ordered.size
    same = np.r_[ordered[1:] != ordered[:-1], True]  # at ties only the last step of the empirical curve counts
    return float(np.abs(highest - expected)[same].max()), float(np.abs(expected - lowest)[:1].max())


def task_seconds(workload):
    """By job, its time on all its GPUs, which is the GPU time of each of its tasks."""
    return workload.jobs.iterations * workload.jobs.seconds_per_iteration


def alone_seconds(workload, gpus=64):
    """By app, its time alone on the testbed: all its work on the GPUs that it can use, and at least its longest job."""
    jobs = workload.jobs
    work = np.bincount(jobs.app, task_seconds(workload) * jobs.most)
    longest = np.zeros(work.size)
    np.maximum.at(longest, jobs.app, task_seconds(workload))
    return np.maximum(longest, work / np.minimum(np.bincount(jobs.app, jobs.most), gpus))


def test_the_median_task_time_equals_that_of_the_paper(drawn):
    _, workload = drawn
    tasks = task_seconds(workload)
    assert np.median(tasks) == pytest.approx(3.75 * 3600, rel=0.05)
    assert np.mean(tasks < np.median(tasks) / 10) > 0.02  # "a significant fraction ... more than 10X shorter" (§2.2)


def test_a_tenth_of_the_apps_has_one_job(drawn):
    _, workload = drawn
    assert (per_app(workload) == 1).mean() == pytest.approx(0.1, abs=0.02)


def test_workload_1_has_a_median_of_75_jobs_and_the_gpu_time_of_figure_3(drawn):
    number, workload = drawn
    if number == 2:
        return
    work = np.bincount(workload.jobs.app, task_seconds(workload) * workload.jobs.most)
    assert np.median(per_app(workload)) == pytest.approx(75, rel=0.05)
    # Tasks are drawn, and not an app's work; Figure 3 has a mean of 9.6 days, and §2.2 prints a median of 11.5.
    assert work.mean() == pytest.approx(GPU_SECONDS_PER_APP.mean, rel=0.25)
    assert np.median(work) == pytest.approx(11.5 * 86_400, rel=0.25)


def test_restarts_cost_the_fraction_of_app_times_that_the_paper_states(drawn):
    _, workload = drawn
    seconds = alone_seconds(workload)
    assert round(100 * 35 / np.median(seconds), 1) == 0.2  # §6.2.3: 35 s at the median
    assert round(100 * 50 / np.quantile(seconds, 0.05)) == 2  # and 50 s at the 95th percentile


def test_tasks_of_an_app_without_a_search_differ_by_at_most_a_factor_of_two():
    plain = generate_workload("themis2", {"apps": 40, "search": "none"}, 3)
    lengths = [task_seconds(plain)[plain.jobs.app == app] for app in range(40)]
    assert all(one.max() <= 2.0 * one.min() * 1.01 for one in lengths)
    assert any(one.max() > 1.5 * one.min() for one in lengths)


def test_options_limit_the_number_of_jobs_of_an_app():
    options = {"apps": 200, "most_gpus": 4, "most_demand": 32, "least_task": 7200.0, "shortest": 1.0, "spread": 0.0}
    workload = generate_workload("themis2", {**options, "search": "none"}, 3)
    assert workload.jobs.most.max() == 4
    assert np.bincount(workload.jobs.app, workload.jobs.most).max() == 32
    assert task_seconds(workload).min() == pytest.approx(7200.0)
    work = np.bincount(workload.jobs.app, task_seconds(workload) * workload.jobs.most)
    # Nothing keeps an app alone from its T_cluster: all its jobs run at once, and end together.
    assert alone_seconds(workload) == pytest.approx(work / np.bincount(workload.jobs.app, workload.jobs.most))


def test_options_set_how_many_gpus_every_app_can_use():
    options = {"apps": 200, "most_gpus": 4, "least_demand": 30, "most_demand": 32, "search": "none"}
    workload = generate_workload("themis2", options, 3)
    demand = np.bincount(workload.jobs.app, workload.jobs.most)
    assert (demand.min(), demand.max()) == (30, 32)
    assert workload.jobs.most.max() == 4


def test_jobs_per_app_and_gpus_per_job_follow_figures_2_and_8(drawn):
    number, workload = drawn
    counts = per_app(workload)
    assert distance(counts, JOBS_PER_APP[number])[0] < TOLERANCE
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    gangs = workload.jobs.most[first]
    assert distance(gangs, GPUS_PER_JOB[number])[0] < TOLERANCE
    assert np.array_equal(np.repeat(gangs, counts), workload.jobs.most)
    largest = {1: (3, 100), 2: (8, 90)}[number]
    assert (gangs.max(), counts.max()) == largest
    assert (gangs.min(), counts.min()) == (1, 1)


def test_models_are_drawn_with_the_shares_of_table_4(drawn):
    _, workload = drawn
    first = np.flatnonzero(np.diff(workload.jobs.app, prepend=-1))
    named = np.array(workload.models)[workload.jobs.model[first]]
    for share, models in MIX.values():
        assert np.isin(named, models).mean() == pytest.approx(share, abs=0.03)
        for model in models:
            assert (named == model).mean() == pytest.approx(share / len(models), abs=0.03)


def test_arrivals_are_poisson_and_the_same_for_both_workloads():
    one, two, dense = (
        generate_workload(name, {"apps": APPS, "contention": contention}, 5).apps.arrival_seconds
        for name, contention in (("themis1", 1), ("themis2", 1), ("themis1", 4))
    )
    assert one[0] == 0.0
    assert np.array_equal(one, two)
    assert np.allclose(dense, one / 4)
    gaps = np.diff(one)
    assert gaps.min() >= 0.0
    mean = 14 * 86_400 / APPS
    assert gaps.mean() == pytest.approx(mean, rel=0.05)
    assert np.mean(gaps > mean) == pytest.approx(np.exp(-1), abs=TOLERANCE)


def test_the_option_network_intensive_sets_the_fraction_of_such_apps():
    def intensive(settings):
        workload = generate_workload("themis1", {"apps": APPS, **settings}, 2)
        first = np.flatnonzero(np.diff(workload.jobs.app, prepend=-1))
        return np.isin(np.array(MODELS)[workload.jobs.model[first]], list(NETWORK_INTENSIVE_MODELS)), workload

    for share in (0.0, 0.4, 1.0):
        chosen, workload = intensive({"network_intensive": share})
        assert chosen.mean() == pytest.approx(share, abs=0.0 if share in (0.0, 1.0) else 0.03)
        # nothing else is drawn anew
        assert np.array_equal(workload.jobs.most, intensive({})[1].jobs.most)
    assert intensive({})[0].mean() == pytest.approx(0.68, abs=0.03)
    assert {"VGG16", "VGG19", "AlexNet"} <= NETWORK_INTENSIVE_MODELS
    assert not {"Inception-v3", "WaveNet"} & NETWORK_INTENSIVE_MODELS


def test_speeds_scale_linearly_with_gpus_apart_from_the_locality_slowdown():
    speeds = generated_speeds("themis1")
    for model in MODELS:
        far, near = (
            speeds.rate(model, Setting(gpus=4, gpu_type="K80", locality=place))
            for place in (Locality.CLUSTER, Locality.ISLAND)
        )
        assert near / far == pytest.approx(1.3 if model in NETWORK_INTENSIVE_MODELS else 1.0)


@settings(max_examples=examples(25))
@given(
    number=st.sampled_from([1, 2]),
    apps=st.integers(1, 12),
    seed=st.integers(0, 1000),
    search=st.sampled_from(["none", "successive_halving", "curve_stopping"]),
    elastic=st.booleans(),
    rungs=st.sampled_from(["equal_budget", "geometric"]),
)
def test_every_workload_is_consistent(number, apps, seed, search, elastic, rungs):
    given_settings = {"apps": apps, "search": search, "elastic": elastic, "rungs": rungs}
    workload = generate_workload(f"themis{number}", given_settings, seed)
    jobs = workload.jobs
    assert np.all(np.diff(workload.apps.arrival_seconds) >= 0.0)
    assert np.all(np.diff(jobs.app) >= 0)
    assert np.all(jobs.arrival_seconds == workload.apps.arrival_seconds[jobs.app])
    assert np.all((jobs.least >= 1) & (jobs.least <= jobs.most))
    assert np.all(elastic | (jobs.least == jobs.most))
    assert np.all((jobs.iterations >= 1) & (jobs.seconds_per_iteration > 0))
    assert len(set(jobs.id)) == workload.size
    assert set(workload.searches) == set(range(apps))
    counts = per_app(workload)
    for app, told in workload.searches.items():
        assert len(told.curves) == counts[app]
        assert told.tuner == (search if counts[app] > 1 else "none")
        if told.tuner == "successive_halving":
            SuccessiveHalvingOptions.model_validate(told.options)
    again = generate_workload(f"themis{number}", given_settings, seed)
    assert np.array_equal(jobs.seconds_per_iteration, again.jobs.seconds_per_iteration)
    assert workload.searches == again.searches


def test_successive_halving_uses_the_gpu_seconds_of_the_app():
    """With the rungs that the tuner reaches and the trials that the curves leave, an app does its tasks' work."""
    plain = generate_workload("themis2", {"apps": 40, "search": "none"}, 3)
    halving = generate_workload("themis2", {"apps": 40}, 3)
    jobs = halving.jobs
    for app, told in halving.searches.items():
        rows = np.flatnonzero(jobs.app == app)
        if told.tuner == "none":
            continue
        run = halving_iterations(np.array(told.curves), int(jobs.iterations[rows[0]]), 2, "equal_budget")
        work = float((run * jobs.seconds_per_iteration[rows] * jobs.most[rows]).sum())
        same = plain.jobs.app == app
        whole = plain.jobs.iterations * plain.jobs.seconds_per_iteration * plain.jobs.most
        assert work == pytest.approx(float(whole[same].sum()))


@pytest.mark.parametrize("search", ["none", "successive_halving"])
def test_in_the_simulator_an_app_uses_the_gpu_seconds_of_its_tasks(search):
    workload = generate_workload("themis2", {"apps": 3, "search": search}, 2)
    plain = generate_workload("themis2", {"apps": 3, "search": "none"}, 2).jobs
    run = simulate_one(workload, Cluster.parse("1x64 K80"), Profile.load("fifo"), models=generated_speeds("themis2"))
    expected = np.bincount(plain.app, plain.iterations * plain.seconds_per_iteration * plain.most)
    assert np.bincount(workload.jobs.app, run.slot_seconds) == pytest.approx(expected)


def test_halving_keeps_the_best_trials_and_doubles_iterations_as_in_section_4_3_3():
    # four trials and 60 iterations: phases of 8, 16 and 36; the lowest asymptotes go on
    curves = np.array([[0.4, 1.0, 0.5], [0.1, 1.0, 0.5], [0.3, 1.0, 0.5], [0.2, 1.0, 0.5]])
    assert halving_iterations(curves, 60, 2, "equal_budget").tolist() == [8, 60, 8, 24]
    assert halving_iterations(curves, 64, 2, "geometric").tolist() == [16, 64, 16, 32]
    assert losses(curves, 8).tolist() == pytest.approx([0.4 + 1 / 3, 0.1 + 1 / 3, 0.3 + 1 / 3, 0.2 + 1 / 3])


def test_halving_drops_a_trial_whose_curve_falls_later():
    # the second ends lower, but is behind at the first rung
    curves = np.array([[0.3, 1.0, 0.9], [0.1, 3.0, 0.5]])
    assert losses(curves, 8).argmin() == 0
    assert losses(curves, 10_000).argmin() == 1
    assert halving_iterations(curves, 24, 2, "equal_budget").tolist() == [24, 8]


def test_bad_settings_are_named_together():
    with pytest.raises(InputError) as raised:
        generate_workload("themis1", {"apps": 0, "contention": "much", "serch": "none"})
    text = str(raised.value)
    assert "apps must be between 1 and 1e+06, but got 0 (--set themis1.apps)" in text
    assert "(--set themis1.contention)" in text
    assert "an option must be one that the generator has" in text
    assert 'got "serch"; did you mean "search"? (--set themis1.serch)' in text
