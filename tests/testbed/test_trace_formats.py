"""Every format by a sample made by hand, and what a reader leaves out."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from eunomia_testbed.traces import read_trace
from eunomia_testbed.traces.building import drawn_model
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.adaptation import SAMPLES

SAMPLES_FOLDER = Path(__file__).parent / "samples"


def sample(name: str, **options: object) -> Workload:
    return read_trace(SAMPLES_FOLDER / name, **options)  # type: ignore[arg-type]


def owners(workload: Workload) -> list[str]:
    return [workload.users.id[user] for user in workload.apps.user]


def left_out(workload: Workload) -> list[tuple[int, str, str]]:
    return [(entry.line, entry.rule, entry.value) for entry in workload.dropped]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("philly.csv", "Philly CSV"),
        ("cluster_job_log.json", "Philly JSON"),
        ("openb_pods.csv", "openb"),
        ("gavel.trace", "Gavel"),
        ("shockwave.trace", "Shockwave"),
        ("synergy_static", "Synergy"),
        ("helios_cluster_log.csv", "Helios"),
        ("pai_task_table.csv", "PAI"),
        ("pollux_philly.csv", "Pollux' Philly CSV"),
        ("pollux_workload.csv", "Pollux"),
        ("small.swf", "Standard Workload Format"),
    ],
)
def test_the_format_is_detected_from_the_file(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sample(name).source == source
    stdin = SimpleNamespace(buffer=io.BytesIO((SAMPLES_FOLDER / name).read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    read = read_trace("-")
    assert (read.source, read.name, read.size) == (source, "stdin", sample(name).size)


def test_philly_jobs_are_sorted_by_arrival_and_belong_to_virtual_clusters() -> None:
    read = sample("philly.csv")
    assert list(read.jobs.id) == ["p0/0", "p2/0", "p1/0"]
    assert read.jobs.arrival_seconds.tolist() == [0.0, 5.0, 10.0]
    assert read.jobs.most.tolist() == read.jobs.least.tolist() == [1, 4, 8]
    assert (read.jobs.iterations * read.jobs.seconds_per_iteration).tolist() == [100.0, 60.0, 50.0]
    assert owners(read) == ["6214e9", "7f04ca", "6214e9"]
    assert read.notes == ("sorted by arrival: 1 of 3 rows were out of order, first line 4",)
    assert read.models == () and read.jobs.model.tolist() == [-1, -1, -1]


def test_models_drawn_by_others_are_used_only_if_requested() -> None:
    read = sample("philly.csv", drawn_models=True)
    assert [read.models[kind] for kind in read.jobs.model] == [
        "TransformerModel256",
        "VggnetModel256",
        "VggnetModel256",
    ]


def test_models_are_drawn_by_id_and_seed() -> None:
    models = ("a", "b", "c")
    read = sample("philly.csv", models=models, seed=3)
    assert [read.models[kind] for kind in read.jobs.model] == [
        drawn_model(models, job, 3) for job in ("p0", "p2", "p1")
    ]
    assert "models drawn for 3 jobs by their id and seed 3, from 3 models" in read.notes
    # The draw is pinned: another one would make other workloads of the same command.
    assert [drawn_model(models, f"job{number}", 0) for number in range(8)] == ["a", "c", "c", "a", "a", "b", "c", "b"]
    drawn = [drawn_model(models, f"job{number}", 1) for number in range(3000)]
    assert all(900 < drawn.count(model) < 1100 for model in models)


def test_a_trace_can_be_limited_to_some_users_or_to_its_first_jobs() -> None:
    assert list(sample("philly.csv", users=("6214e9",)).jobs.id) == ["p0/0", "p1/0"]
    assert list(sample("philly.csv", first_jobs=2).jobs.id) == ["p0/0", "p2/0"]


def test_for_philly_json_attempts_are_summed_and_summer_time_is_respected() -> None:
    read = sample("cluster_job_log.json")
    assert list(read.apps.id) == ["application_1_0001", "application_1_0003"]
    assert read.jobs.iterations.tolist() == [3600.0 + 1800.0, 600.0]
    assert read.jobs.most.tolist() == [4, 1]
    assert read.jobs.arrival_seconds.tolist() == [0.0, 9 * 3600.0]  # clocks went back by an hour that night
    assert owners(read) == ["u1", "unknown"]
    assert owners(sample("cluster_job_log.json", by_group=True)) == ["ee9e8c", "6214e9"]
    assert left_out(read) == [(27, "attempts must hold one with a start_time and an end_time", "0 attempts")]


def test_openb_pods_give_parts_of_gpus_types_cpus_and_memory() -> None:
    read = sample("openb_pods.csv")
    assert list(read.apps.id) == ["openb-pod-0", "openb-pod-2", "openb-pod-4"]
    assert read.jobs.iterations.tolist() == [790.0, 1000.0, 750.0]
    assert read.jobs.gpu_type == [None, "V100M32", None]
    assert read.jobs.gpu_share is not None and read.jobs.gpu_share.tolist() == [0.46, 1.0, 1.0]
    assert read.jobs.cpus_per_gpu is not None and read.jobs.cpus_per_gpu.tolist() == [12.0, 8.0, 8.0]
    assert read.jobs.memory_gib_per_gpu is not None and read.jobs.memory_gib_per_gpu.tolist() == [16.0, 32.0, 32.0]
    assert [line for line, *_ in left_out(read)] == [3, 5]
    assert len(read.notes) == 3


def test_helios_leaves_out_jobs_without_gpus() -> None:
    read = sample("helios_cluster_log.csv")
    assert read.jobs.arrival_seconds.tolist() == [0.0, 26.0]
    assert owners(read) == ["uA", "uB"] and owners(sample("helios_cluster_log.csv", by_group=True)) == ["vcX", "vcX"]
    assert left_out(read) == [(4, "gpu_num must be at least 1", "0"), (5, "duration must be above 0", "0")]


def test_pai_tasks_of_a_job_form_one_gang() -> None:
    read = sample("pai_task_table.csv")
    assert list(read.apps.id) == ["a1", "b2", "e5"]
    assert read.jobs.most.tolist() == [1, 4, 1]
    assert read.jobs.gpu_share is not None and read.jobs.gpu_share.tolist() == [0.5, 1.0, 0.75]
    assert read.jobs.iterations.tolist() == [600.0, 1000.0, 100.0]
    assert read.jobs.arrival_seconds.tolist() == [0.0, 1005.0, 2200.0]  # of pai_job_table.csv
    assert owners(read) == ["userA", "userB", "userA"]
    assert [line for line, *_ in left_out(read)] == [4, 5]


def test_pai_without_its_job_table_notes_that_users_and_submissions_are_missing(tmp_path: Path) -> None:
    (tmp_path / "tasks.csv").write_bytes((SAMPLES_FOLDER / "pai_task_table.csv").read_bytes())
    read = read_trace(tmp_path / "tasks.csv")
    assert owners(read) == ["all"] * 3 and read.jobs.arrival_seconds.tolist() == [0.0, 1000.0, 2200.0]
    assert read.notes == ("no pai_job_table.csv next to it: one user, and a job arrives when its first task started",)


def test_pollux_workloads_are_epochs_at_the_batch_size_of_the_trace() -> None:
    read = sample("pollux_workload.csv")
    assert [read.models[kind] for kind in read.jobs.model] == ["cifar10", "bert"]
    # 391 steps of 128 samples are an epoch of CIFAR-10.
    assert read.jobs.iterations.tolist() == [100 * 391, 2 * 1847]
    assert np.isnan(read.jobs.seconds_per_iteration).all()
    assert left_out(read)[0][::2] == (4, "alexnet")


def test_pollux_philly_rows_are_sorted_and_inconsistent_ones_dropped() -> None:
    read = sample("pollux_philly.csv")
    assert list(read.apps.id) == ["line3", "line2"] and read.jobs.most.tolist() == [2, 1]
    assert read.jobs.arrival_seconds.tolist() == [0.0, 48 * 60 + 52]
    assert left_out(read) == [(4, "gpu_time must be duration times num_gpus", "2759000.0")]


def test_swf_comments_and_unknown_values_are_read() -> None:
    read = sample("small.swf")
    assert read.jobs.most.tolist() == [4, 2] and read.jobs.iterations.tolist() == [100.0, 50.0]
    assert owners(read) == ["user3", "user5"] and owners(sample("small.swf", by_group=True)) == ["group1", "group2"]
    assert left_out(read) == [(7, "run_time must be above 0", "-1"), (8, "a row must have 18 fields", "11")]


def test_the_fourth_column_of_synergy_is_iterations() -> None:
    read = sample("synergy_static")
    assert read.jobs.iterations.tolist() == [3349.0, 26435.0]
    assert np.isnan(read.jobs.seconds_per_iteration).all() and read.models == ("alexnet", "gnmt")


def test_the_time_of_a_gavel_step_comes_from_the_throughputs() -> None:
    untold = sample("gavel.trace")
    assert np.isnan(untold.jobs.seconds_per_iteration).all() and untold.reference_type is None
    read = sample("gavel.trace", throughputs=SAMPLES_FOLDER / "throughputs.json")
    assert read.jobs.seconds_per_iteration.tolist() == [1 / 43.0, 1 / 95.0] and read.reference_type == "v100"
    assert read.jobs.weight is not None and read.jobs.weight.tolist() == [1.0, 2.0]
    assert read.jobs.batch_size is not None and read.jobs.batch_size.tolist() == [128.0, 10.0]


def test_shockwave_jobs_change_their_batch_size() -> None:
    read = sample("shockwave.trace", throughputs=SAMPLES_FOLDER / "throughputs.json")
    assert read.jobs.adaptation == ["accordion", "gns", "static"]
    assert [part.batch_size for part in read.regimes[0]] == [32.0, 256.0]
    # 92 epochs, the first 28 of them critical: more than the table's 10, the first 30 % with the one at their end.
    assert [part.iterations * part.batch_size / SAMPLES["ResNet-18"] for part in read.regimes[0]] == [28.0, 64.0]
    assert read.jobs.iterations[0] == sum(part.iterations for part in read.regimes[0])
    assert read.jobs.first_batch_iterations is not None and read.jobs.first_batch_iterations[0] == 143450
    assert read.exclusive_seconds is not None
    assert read.exclusive_seconds[0] == pytest.approx(28 * 50000 / 32 / 40 + 64 * 50000 / 256 / 6)
    assert np.isnan(read.jobs.seconds_per_iteration[2])  # it runs, but not on the type that is meant


def test_without_throughputs_step_times_come_from_the_durations_of_shockwave() -> None:
    read = sample("shockwave.trace")
    assert read.jobs.seconds_per_iteration[0] == pytest.approx(3338 / 143450)
    first, grown = read.regimes[0]
    assert first.seconds_per_iteration == pytest.approx(3338 / 143450) and np.isnan(grown.seconds_per_iteration)
    assert read.exclusive_seconds is None
