"""Times of a trace hold on the GPU type that they are of, whatever else a cluster has."""

import json
from pathlib import Path

import pytest

from eunomia.model.cluster import Cluster
from eunomia_testbed.performance import GavelThroughputs
from eunomia_testbed.simulator.progress.truth import Speeds
from eunomia_testbed.traces import read_trace

LINE = "LM (batch size 10)\tpython3 main.py\tlanguage_modeling\t--steps\t1\t1000\t1\t1\t-1.0\t0\n"
RATES = {
    "k80": {"('LM (batch size 10)', 1)": {"null": 20.0}},
    "v100": {"('LM (batch size 10)', 1)": {"null": 100.0}},
}


@pytest.mark.parametrize("cluster", ["1x1 V100, 4x1 K80", "4x1 K80, 1x1 V100", "2x1 V100", "3x1 K80"])
def test_jobs_of_a_trace_run_at_the_rate_of_each_gpu_type(tmp_path: Path, cluster: str) -> None:
    """The trace tells the time on a V100, and most GPUs of the first two clusters are none."""
    (tmp_path / "one.trace").write_text(LINE)
    (tmp_path / "rates.json").write_text(json.dumps(RATES))
    workload = read_trace(tmp_path / "one.trace", throughputs=tmp_path / "rates.json")
    assert workload.jobs.seconds_per_iteration.tolist() == [0.01]
    there = Cluster.parse(cluster)
    speeds = Speeds(workload, there, GavelThroughputs.read(tmp_path / "rates.json"))
    for gpu in range(there.gpus):
        rate = RATES[there.gpu_types[there.gpu_type[gpu]].lower()]["('LM (batch size 10)', 1)"]["null"]
        assert 1.0 / speeds.seconds_per_iteration(0, [gpu]) == pytest.approx(rate)
