"""Generators of traces: Gavel's, Synergy's, Shockwave's, AFS' and OEF's."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import three_types
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia.units import Locality
from eunomia_testbed.generators import (
    GENERATORS,
    ShockwaveOptions,
    describe_generator,
    generate_workload,
    generated_speeds,
)
from eunomia_testbed.generators.afs import CLUSTERS, MOST_GPUS
from eunomia_testbed.generators.derived import TASKS
from eunomia_testbed.generators.drawing import Steps, derived_minutes, picked, poisson_arrivals, stream
from eunomia_testbed.generators.job_types import GAVEL, SHOCKWAVE
from eunomia_testbed.generators.oef import MODELS
from eunomia_testbed.generators.shockwave import trace_lines
from eunomia_testbed.performance import GavelThroughputs, Setting
from eunomia_testbed.traces import read_trace
from strength import examples

_spec = importlib.util.spec_from_file_location("real_data", Path(__file__).with_name("real_data.py"))
real_data = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(real_data)

MANY = 20_000
CLOSE = 1.63 / MANY**0.5
"""Kolmogorov and Smirnov's distance at 1 % for so many draws."""


@pytest.fixture
def rates_file(tmp_path):
    """Made-up throughputs: ten steps a second a GPU for every job type at every gang that it may have."""
    kinds = {kind: gangs for kind in GAVEL for gangs in [(1, 2, 4, 8) if kind.distributed else (1,)]}
    table = {f"('{kind.model}', {gang})": {"null": 10.0 * gang} for kind, gangs in kinds.items() for gang in gangs}
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({"v100": table, "k80": {key: {"null": 0.0} for key in table}}))
    return path


# --- draws ---------------------------------------------------------------------------------------------------------


def test_durations_of_gavel_and_synergy_follow_their_published_distribution():
    minutes = np.sort(derived_minutes(stream(1, "durations"), MANY))
    exponent = np.log10(minutes)
    expected = np.where(exponent < 3.0, 0.8 * (exponent - 1.5) / 1.5, 0.8 + 0.2 * (exponent - 3.0))
    assert np.abs(expected - np.arange(1, MANY + 1) / MANY).max() < CLOSE
    assert minutes[0] >= 10**1.5
    assert minutes[-1] <= 10**4


def test_poisson_arrivals_are_sorted_and_start_at_zero():
    arrivals = poisson_arrivals(stream(1, "arrivals"), MANY, 40.0)
    gaps = np.sort(np.diff(arrivals))
    assert arrivals[0] == 0.0
    assert np.abs(1.0 - np.exp(-gaps / 40.0) - np.arange(1, MANY) / (MANY - 1)).max() < CLOSE
    assert np.array_equal(poisson_arrivals(stream(1, "arrivals"), 3, 0.0), np.zeros(3))
    assert poisson_arrivals(stream(1, "arrivals"), 0, 1.0).size == 0


def test_step_distributions_are_linear_between_points():
    steps = Steps(points=((1, 0.5), (3, 1.0)), source="made up")
    assert steps.at(np.array([0.0, 0.5, 0.75, 1.0])).tolist() == [1.0, 1.0, 2.0, 3.0]
    assert steps.cdf(np.array([0.5, 1.0, 2.0, 4.0])).tolist() == [0.0, 0.5, 0.75, 1.0]
    assert steps.mean == pytest.approx(0.5 + 0.5 * 2.0)


@given(seed=st.integers(0, 99), chances=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5))
def test_random_choices_follow_their_probabilities(seed, chances):
    rows = picked(stream(seed, "picks"), 5000, chances)
    parts = np.bincount(rows, minlength=len(chances)) / 5000
    assert np.abs(parts - np.array(chances) / sum(chances)).max() < 0.04


def test_random_streams_differ_by_quantity_and_seed():
    first = stream(1, "a").random(4)
    assert np.array_equal(first, stream(1, "a").random(4))
    assert not np.array_equal(first, stream(1, "b").random(4))
    assert not np.array_equal(first, stream(2, "a").random(4))


# --- Gavel and Synergy ----------------------------------------------------------------------------------------------


def test_gavel_draws_gang_sizes_by_its_split_and_models_that_run_at_them(rates_file):
    workload = generate_workload("gavel", {"jobs": MANY, "throughputs": str(rates_file)}, 4)
    jobs = workload.jobs
    parts = [float(np.mean(jobs.most == gang)) for gang in (1, 2, 4, 8)]
    assert parts == pytest.approx([0.70, 0.10, 0.15, 0.05], abs=CLOSE)
    single = {kind.model for kind in GAVEL if not kind.distributed}
    named = np.array(workload.models)[jobs.model]
    assert set(named[jobs.most == 1]) == {kind.model for kind in GAVEL}
    assert not single & set(named[jobs.most > 1])
    seconds = jobs.iterations * jobs.seconds_per_iteration
    assert np.all(np.abs(np.log10(seconds / 60.0) - 2.75) <= 1.2501)
    assert jobs.seconds_per_iteration == pytest.approx(0.1 / jobs.most)
    assert np.diff(jobs.arrival_seconds).mean() == pytest.approx(1200.0, rel=0.03)
    speeds = generated_speeds("gavel", {"throughputs": str(rates_file)})
    assert speeds.rate("LM (batch size 5)", Setting(gpus=2, gpu_type="V100", locality=Locality.ISLAND)) == 20.0


def test_without_throughputs_gavel_counts_work_in_seconds():
    workload = generate_workload("gavel", {"jobs": 50, "interarrival": "0s", "gpu_split": [1.0]}, 4)
    assert np.all(workload.jobs.seconds_per_iteration == 1.0)
    assert np.all(workload.jobs.arrival_seconds == 0.0)
    assert np.all(workload.jobs.most == 1)
    assert generated_speeds("gavel", {"jobs": 50}) is None


def test_gavel_names_a_gpu_type_on_which_nothing_runs(rates_file):
    with pytest.raises(InputError, match=r"the throughput of ResNet-18 .* on k80 must be above 0, but got 0.0"):
        generate_workload("gavel", {"throughputs": str(rates_file), "gpu_type": "k80"})


def test_gavel_takes_seconds_per_iteration_from_the_published_throughputs():
    path = real_data.shared_data("gavel/simulation_throughputs.json.gz")
    workload = generate_workload("gavel", {"jobs": 2000, "throughputs": str(path)}, 1)
    rates = GavelThroughputs.read(path)
    for row in range(0, 2000, 50):
        model, gang = workload.models[workload.jobs.model[row]], int(workload.jobs.most[row])
        assert workload.jobs.seconds_per_iteration[row] == pytest.approx(1.0 / rates.measured(model, gang, "v100"))


def test_synergy_splits_models_by_task():
    workload = generate_workload("synergy", {"jobs": MANY, "split": [0.5, 0.2, 0.3]}, 8)
    named = np.array(workload.models)[workload.jobs.model]
    for part, (task, models) in zip((0.5, 0.2, 0.3), TASKS.items(), strict=True):
        assert np.isin(named, models).mean() == pytest.approx(part, abs=CLOSE), task
        for model in models:
            assert (named == model).mean() == pytest.approx(part / len(models), abs=CLOSE)
    assert np.diff(workload.jobs.arrival_seconds).mean() == pytest.approx(600.0, rel=0.03)
    assert set(workload.jobs.most.tolist()) == {1, 2, 4, 8, 16}
    single = generate_workload("synergy", {"jobs": 10, "gpu_split": [1.0], "jobs_per_hour": 0.0}, 8)
    assert set(single.jobs.most.tolist()) == {1}
    assert not single.jobs.arrival_seconds.any()


def test_synergy_with_profiles_keeps_the_durations_and_uses_models_of_the_profiles():
    folder = real_data.shared_data("synergy")
    bare, told = (generate_workload("synergy", {"jobs": 300, **more}, 8) for more in ({}, {"profiles": str(folder)}))
    seconds = told.jobs.iterations * told.jobs.seconds_per_iteration
    assert seconds == pytest.approx(bare.jobs.iterations, rel=2e-3)
    assert set(told.models) <= set(generated_speeds("synergy", {"profiles": str(folder)}).models)


# --- Shockwave ------------------------------------------------------------------------------------------------------

NAME = "120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace"


def test_a_published_trace_is_regenerated_from_the_parameters_in_its_name():
    """All columns that a simulation reads, of all 120 jobs, and the very same workload."""
    trace = real_data.shared_data("shockwave/canonical_120jobs_32gpus.trace")
    throughputs = real_data.shared_data("shockwave/tacc_throughputs.json.gz")
    options, seed = ShockwaveOptions.of_name(NAME, throughputs)
    assert seed == 25
    columns = [0, 5, 6, 7, 8, 9, 10, 11]
    published = [line.split("\t") for line in trace.read_text().splitlines()]
    drawn = [line.split("\t") for line in trace_lines(options, seed, GavelThroughputs.read(throughputs))]
    assert [[row[at] for at in columns] for row in drawn] == [[row[at] for at in columns] for row in published]
    read, made = read_trace(trace, throughputs=throughputs), generate_workload("shockwave", dict(options), seed)
    assert made.regimes == read.regimes
    assert made.exclusive_seconds == pytest.approx(read.exclusive_seconds)
    assert made.jobs.iterations == pytest.approx(read.jobs.iterations)
    assert np.array_equal(made.jobs.arrival_seconds, read.jobs.arrival_seconds)


def test_shockwave_draws_modes_and_durations_by_its_splits(rates_file):
    mine = {"throughputs": str(rates_file), "jobs": 4000, "mode_split": [0.2, 0.3, 0.5]}
    workload = generate_workload("shockwave", mine, 3)
    jobs = workload.jobs
    modes = np.array(jobs.adaptation)
    seconds = np.array(jobs.first_batch_iterations) * jobs.seconds_per_iteration
    assert np.mean(modes == "gns") == pytest.approx(0.5, abs=0.03)
    assert np.mean(modes[seconds >= 1001] == "accordion") == pytest.approx(0.3, abs=0.03)
    assert not np.any(modes[seconds < 999] == "accordion")
    bands = np.digitize(seconds / 3600.0, np.linspace(0.2, 5.0, 100)[[20, 50, 90]] - 0.01)
    assert np.bincount(bands, minlength=4) / 4000 == pytest.approx([0.72, 0.20, 0.05, 0.03], abs=0.03)
    single = {kind.model for kind in SHOCKWAVE if not kind.distributed}
    alone = np.isin(np.array(workload.models)[jobs.model], list(single))
    assert np.all(jobs.most[alone] == 1)
    parts = [float(np.mean(jobs.most[~alone] == gang)) for gang in (1, 2, 4, 8)]
    assert parts == pytest.approx([0.6, 0.3, 0.09, 0.01], abs=0.03)
    assert workload.regimes


def test_invalid_options_of_the_shockwave_generator_are_refused(tmp_path):
    with pytest.raises(InputError, match=r'must be named J_a_b_n_L_S_.* but got "canonical.trace"'):
        ShockwaveOptions.of_name("canonical.trace", tmp_path)
    with pytest.raises(InputError, match=r"throughputs must be given \(--set shockwave.throughputs\)"):
        generate_workload("shockwave")
    with pytest.raises(InputError, match=r"^shortest_hours must be at most longest_hours \(5\), but got 6"):
        generate_workload("shockwave", {"throughputs": "x", "shortest_hours": 6.0})
    with pytest.raises(InputError, match="mode_split must be 1 to 3 probabilities that add up to 1"):
        generate_workload("shockwave", {"throughputs": "x", "mode_split": [0.5, 0.2, 0.2]})
    with pytest.raises(InputError, match="must be readable"):
        generate_workload("shockwave", {"throughputs": str(tmp_path / "none.json")})


# --- AFS ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def philly(tmp_path):
    header = "job_id,submit_s,submit_local,duration_s,num_gpus,vc,status,afs_model\n"
    gangs = (1, 2, 4, 8, 12, 20, 28, 44, 48)
    rows = [
        f"ph{row},{row * 10},x,{100 + row},{gangs[row % len(gangs)]},{'2869ce' if row % 2 else '0e4a51'},Pass,"
        f"{'Inception4Model256'}\n"
        for row in range(900)
    ]
    path = tmp_path / "philly.csv"
    path.write_text(header + "".join(rows))
    return path


@pytest.fixture
def scaling(tmp_path):
    rows = [
        f"{model},1,{gpus},{12.0 / gpus**0.5}\n" for model, most in MOST_GPUS.items() for gpus in range(1, most + 1)
    ]
    path = tmp_path / "scaling.csv"
    path.write_text("model,global_batch,num_gpus,step_time_s\n" + "".join(rows))
    return path


def test_afs_draws_only_models_that_can_use_the_gang_size(philly):
    workload = generate_workload("afs", {"trace": str(philly), "cluster": "9"}, 1)
    assert workload.size == 450
    assert workload.users.id == ["2869ce"]
    limits = np.array([MOST_GPUS[workload.models[model]] for model in workload.jobs.model])
    assert np.all(limits >= workload.jobs.most)
    small = workload.jobs.model[workload.jobs.most <= 4]
    assert np.bincount(small, minlength=9) / small.size == pytest.approx(np.full(9, 1 / 9), abs=0.08)
    assert np.all(workload.jobs.seconds_per_iteration == 1.0)


def test_afs_keeps_the_times_of_the_trace_at_the_requested_gpus(philly, scaling):
    mine = {"trace": str(philly), "scaling": str(scaling), "cluster": "0e4a51"}
    bare = generate_workload("afs", {**mine, "elastic": False}, 1)
    free = generate_workload("afs", mine, 1)
    seconds = bare.jobs.iterations * bare.jobs.seconds_per_iteration
    assert seconds == pytest.approx(100 + np.arange(0, 900, 2))
    assert np.array_equal(bare.jobs.least, bare.jobs.most)
    assert np.all(free.jobs.least == 1)
    assert np.all(free.jobs.most >= bare.jobs.most)
    assert free.jobs.iterations == pytest.approx(bare.jobs.iterations)
    speeds = generated_speeds("afs", mine)
    for row in range(0, free.size, 45):
        setting = Setting(gpus=int(free.jobs.most[row]), gpu_type="GTX1080", locality=Locality.RACK)
        rate = speeds.rate(free.models[free.jobs.model[row]], setting)
        assert free.jobs.seconds_per_iteration[row] == pytest.approx(1.0 / rate)


def test_afs_accepts_models_of_the_trace_and_refuses_unknown_clusters(philly):
    told = generate_workload("afs", {"trace": str(philly), "told_models": True}, 1)
    assert told.models == ("Inception4Model256",)
    with pytest.raises(InputError, match=r'of Philly\'s 0e4a51, .* or all, but got "2869cf"; did you mean "2869ce"'):
        generate_workload("afs", {"trace": str(philly), "cluster": "2869cf"})
    with pytest.raises(InputError, match=r"cluster must be a user of the trace, .* got \"12\""):
        generate_workload("afs", {"trace": str(philly), "cluster": "12"})
    philly.write_text(philly.read_text().replace(",48,", ",64,"))
    with pytest.raises(InputError, match="a job must ask for at most 52 GPUs, but got 64"):
        generate_workload("afs", {"trace": str(philly)})


def test_afs_accepts_any_trace_with_its_own_or_drawn_models(philly, tmp_path):
    own = tmp_path / "own.csv"
    own.write_text(three_types.trace())
    mine = {"trace": str(own), "cluster": "all"}
    kept, drawn = (generate_workload("afs", {**mine, "told_models": told}, 1) for told in (True, False))
    assert (kept.size, set(kept.models)) == (100, set(three_types.SPELT))
    assert (drawn.size, set(drawn.models)) == (100, set(MOST_GPUS))
    assert np.array_equal(kept.jobs.arrival_seconds, drawn.jobs.arrival_seconds)
    every = generate_workload("afs", {"trace": str(philly), "cluster": "all"}, 1)
    assert every.users.id == ["0e4a51", "2869ce"]


def test_models_of_a_trace_given_to_afs_are_checked_like_in_simulations(tmp_path, monkeypatch, capsys):
    three_types.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = ("trace=by-hand.csv", "cluster=all", "told_models=true", "reference_type=V100")
    flags = ["--workload", "afs", *(part for text in given for part in ("--set", f"afs.{text}"))]
    flags += ["--cluster", "2x8 V100, 1x8 P100", "--speeds", "speeds.json", "--policy", "srtf", "--elastic", "1..8"]
    flags += ["--no-report", "--no-progress", "--out", "run", "-j", "1"]
    assert run(["simulate", *flags]) == 2
    assert '"resnet50" (38 jobs, 43.5 GPU hours; did you mean "ResNet-50"?)' in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert run(["simulate", *flags, "--unknown-models", three_types.AS_SPELT]) == 0
    assert 'Speeds of "ResNet-50" taken for "resnet50": 38 of 100 jobs' in capsys.readouterr().out


def test_clusters_of_afs_have_as_many_jobs_as_in_table_3():
    trace = real_data.shared_data("philly/philly_full_reconstructed.csv.gz")
    scaling = real_data.shared_data("afs/afs_scaling.csv")
    for number, jobs in ((4, 938), (6, 1461), (9, 956), (11, 1400)):
        mine = {"trace": str(trace), "scaling": str(scaling), "cluster": str(number), "told_models": True}
        assert generate_workload("afs", mine).size == jobs
    assert len(CLUSTERS) == 11


# --- OEF ------------------------------------------------------------------------------------------------------------


def test_tenants_of_oef_have_one_type_each_and_the_requested_load():
    workload = generate_workload("oef", {"tenants": 200, "load": 1.5}, 6)
    jobs = workload.jobs
    user = workload.apps.user
    assert len(workload.users.id) == 200
    counts = np.bincount(user)
    assert counts.min() >= 1
    assert counts.mean() == pytest.approx(20.0, rel=0.05)
    for tenant in range(200):
        assert np.unique(jobs.model[user == tenant]).size == 1
        assert np.unique(jobs.arrival_seconds[user == tenant]).size == 1
    work = float((jobs.iterations * jobs.seconds_per_iteration * jobs.most).sum())
    assert work == pytest.approx(1.5 * 24 * 3 * 86_400, rel=1e-3)
    assert jobs.arrival_seconds.max() <= 1.5 * 86_400
    assert set(jobs.most.tolist()) == {1, 2, 4}


def test_speedups_of_oef_equal_the_printed_ones_and_grow_from_vgg_to_lstm():
    speeds = generated_speeds("oef")

    def gain(model, kind):
        fast, slow = (
            speeds.rate(model, Setting(gpus=1, gpu_type=name, locality=Locality.ISLAND)) for name in (kind, "RTX3070")
        )
        return fast / slow

    assert gain("VGG", "RTX 3090") == pytest.approx(1.39)
    assert gain("LSTM", "rtx-3090") == pytest.approx(2.15)
    gains = [gain(model, "RTX3090") for model in MODELS]
    assert gains == sorted(gains)
    assert all(1.0 < gain(model, "RTX3080") < gain(model, "RTX3090") for model in MODELS)


def test_identical_apps_have_equal_jobs_and_arrivals():
    workload = generate_workload("identical", {"apps": 3, "jobs": 2, "time": "1h", "least": 2})
    jobs = workload.jobs
    assert workload.apps.id == ["app0", "app1", "app2"]
    assert list(jobs.id) == ["app0/0", "app0/1", "app1/0", "app1/1", "app2/0", "app2/1"]
    assert not jobs.arrival_seconds.any()
    assert np.all(jobs.iterations * jobs.seconds_per_iteration == pytest.approx(3600.0))
    assert set(jobs.least.tolist()) == {2}
    assert set(jobs.most.tolist()) == {8}


# --- all of them ----------------------------------------------------------------------------------------------------


@settings(max_examples=examples(30))
@given(name=st.sampled_from(["gavel", "synergy", "oef", "themis1"]), size=st.integers(1, 60), seed=st.integers(0, 999))
def test_the_same_seed_gives_the_same_workload_and_sorted_arrivals(name, size, seed):
    count = {"gavel": "jobs", "synergy": "jobs", "oef": "tenants", "themis1": "apps"}[name]
    one, two = (generate_workload(name, {count: size}, seed) for _ in range(2))
    assert one.jobs.id == two.jobs.id
    assert np.array_equal(one.jobs.iterations, two.jobs.iterations)
    assert np.array_equal(one.jobs.model, two.jobs.model)
    assert np.all(np.diff(one.jobs.arrival_seconds) >= 0.0)
    assert one.jobs.arrival_seconds[0] == 0.0
    assert np.all(one.jobs.iterations > 0) and np.all(one.jobs.seconds_per_iteration > 0)
    assert np.all((one.jobs.model >= 0) & (one.jobs.model < len(one.models)))
    assert len(set(one.apps.id)) == len(one.apps.id)


def test_every_generator_describes_its_options():
    for name, generator in GENERATORS.items():
        assert generator.summary
        for option, entry in describe_generator(name).items():
            assert entry.get("description"), f"{name}.{option}"


def test_unknown_generators_and_negative_seeds_are_refused():
    with pytest.raises(InputError, match=r'one of themis1, .* but got "themis"; did you mean "themis'):
        generate_workload("themis")
    with pytest.raises(InputError, match=r"seed must not be negative, but got -1 \(--seed\)"):
        generate_workload("gavel", {}, -1)
