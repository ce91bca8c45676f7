"""Under each preset a job that waits for a machine goes on once the machine is back, though nothing else happens."""

from pathlib import Path

import numpy as np
import pytest

from eunomia.platform.registry import default_registry
from eunomia_testbed import simulate
from eunomia_testbed.workload import Workload

CLUSTER = "1x4 V100 32cpu 128GB"
OUTAGE = "time_seconds,machine,state\n50,m01,down\n400,m01,up\n"


@pytest.mark.parametrize("name", sorted(default_registry().presets()))
def test_a_job_resumes_once_its_machine_is_back(name: str, tmp_path: Path) -> None:
    (tmp_path / "outage.csv").write_text(OUTAGE)
    jobs = Workload.single_jobs(
        "one",
        ids=["j1"],
        arrival_seconds=np.zeros(1),
        gpus=np.ones(1, int),
        iterations=np.full(1, 100.0),
        seconds_per_iteration=np.ones(1),
    )
    outage = str(tmp_path / "outage.csv")
    run = simulate(jobs, CLUSTER, [name], failures=outage, speeds="equal", know="oracle", until="1d").run
    (finish,) = run.jobs["finish_seconds"].to_list()
    assert finish is not None, "no round came once the machine was back"
    assert finish > 400.0
