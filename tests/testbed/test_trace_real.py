"""The public traces that lie beside the project: how many jobs each gives, and what its authors published of it."""

import csv
import gzip
import json
import subprocess
import sys
from collections import Counter
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from real_data import shared_data

from eunomia_testbed.traces import read_trace
from eunomia_testbed.workload import Workload


def shockwave() -> Workload:
    rates = shared_data("shockwave/tacc_throughputs.json.gz")
    return read_trace(shared_data("shockwave/canonical_120jobs_32gpus.trace"), throughputs=rates)


def test_the_whole_trace_of_philly_is_read() -> None:
    read = read_trace(shared_data("philly/philly_full_reconstructed.csv.gz"), strict=True)
    assert read.size == 109_532 and not read.dropped and not read.notes
    assert len(read.users.id) == 12 and int(read.jobs.most.max()) == 48
    assert read.jobs.arrival_seconds[-1] / 86400 == pytest.approx(129, abs=1)


def test_the_eleven_clusters_of_afs_have_the_jobs_of_table_3() -> None:
    read = read_trace(shared_data("philly/philly_full_reconstructed.csv.gz"))
    jobs = {read.users.id[user]: int(count) for user, count in enumerate(np.bincount(read.apps.user))}
    table = {"0e4a51": 2465, "6c71a0": 14783, "b436b2": 9031, "e13805": 938, "6214e9": 51258, "7f04ca": 1461}
    table |= {"103959": 2677, "ee9e8c": 5452, "2869ce": 956, "11cb48": 19048, "ed69ec": 1400, "51b7ef": 63}
    assert jobs == table


def test_openb_leaves_out_pods_without_gpus_and_pods_that_never_ran() -> None:
    read = read_trace(shared_data("alibaba_openb_v2023/openb_pod_list_default.csv.gz"))
    assert read.size == 6203 and read.size + len(read.dropped) == 8152
    rules = Counter(entry.rule for entry in read.dropped)
    assert rules["num_gpu must be at least 1"] == 1088 and len(rules) == 2
    assert read.jobs.gpu_share is not None and int(np.sum(read.jobs.gpu_share < 1.0)) == 2573


def test_the_heterogeneous_trace_of_gavel_is_read() -> None:
    rates = shared_data("gavel/simulation_throughputs.json.gz")
    read = read_trace(shared_data("gavel/max_min_fairness.trace"), throughputs=rates, strict=True)
    assert read.size == 96 and np.isfinite(read.jobs.seconds_per_iteration).all()
    assert Counter(read.jobs.most.tolist()).keys() <= {1, 2, 4, 8}


def test_the_static_trace_of_synergy_is_read() -> None:
    read = read_trace(shared_data("synergy/static_100job_6_3_1100.0"), strict=True)
    assert read.size == 100 and set(read.jobs.most.tolist()) == {1}


def test_the_profile_of_shockwave_is_read_epoch_by_epoch() -> None:
    """The published profile: batch size and seconds of every epoch of every job."""
    path = shared_data("shockwave/canonical_120jobs_32gpus.profile.json.gz")
    profile = json.loads(gzip.decompress(path.read_bytes()))
    read = shockwave()
    assert read.size == len(profile) == 120 and not read.dropped
    assert read.exclusive_seconds is not None
    for row, published in enumerate(profile):
        total = sum(seconds * epochs for seconds, epochs in published["duration_every_epoch"])
        assert read.exclusive_seconds[row] == pytest.approx(total, rel=1e-9)
        runs = lives(read, row, published["num_samples_per_epoch"])
        told = joined(published["bs_every_epoch"])
        assert [(size, pytest.approx(epochs)) for size, epochs in told] == runs or len(runs) == len(told) == 1


def lives(read: Workload, row: int, samples: int) -> list[tuple[float, float]]:
    """Runs of batch size and epochs; of a job that never changes, its batch size and the epochs that it takes."""
    parts = read.regimes.get(row)
    if parts is None:
        batch = float(read.jobs.batch_size[row]) if read.jobs.batch_size is not None else 0.0
        return [(batch, float(np.ceil(read.jobs.iterations[row] / np.ceil(samples / batch))))]
    return [(part.batch_size, part.iterations * part.batch_size / samples) for part in parts]


def joined(pairs: list[list[Any]]) -> list[tuple[float, float]]:
    runs = groupby(pairs, key=lambda pair: pair[0])
    return [(float(size), float(sum(epochs for _, epochs in run))) for size, run in runs]


def test_the_published_list_of_jobs_of_shockwave_is_read() -> None:
    read = shockwave()
    with shared_data("shockwave/published_per_job.csv").open() as stream:
        published = list(csv.DictReader(stream))
    assert read.jobs.adaptation == [row["mode"] for row in published]
    assert read.jobs.arrival_seconds.tolist() == [float(row["arrival_s"]) for row in published]
    assert read.exclusive_seconds is not None
    told = [float(row["profile_duration_s"]) for row in published]
    assert read.exclusive_seconds == pytest.approx(np.array(told), abs=1e-3)


def test_reading_philly_imports_no_heavy_library() -> None:
    path = shared_data("philly/philly_full_reconstructed.csv.gz")
    code = (
        "import sys\nfrom eunomia_testbed.traces import read_trace\n"
        f"assert read_trace({str(path)!r}).size == 109532\n"
        "print(sorted({'pandas', 'scipy', 'torch', 'cvxpy', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
