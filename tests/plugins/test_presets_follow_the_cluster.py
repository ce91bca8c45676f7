"""Under each preset a machine that comes back gives waiting jobs a round at once, though nothing else happens."""

from pathlib import Path

import numpy as np
import pytest

from eunomia.contract.stages import DEFAULT_TRIGGERS
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import default_registry
from eunomia.units import Cause
from eunomia_testbed import simulate
from eunomia_testbed.workload import Workload

CLUSTER = "1x4 V100 32cpu 128GB"
OUTAGE = "time_seconds,machine,state\n50,m01,down\n400,m01,up\n"


@pytest.mark.parametrize("name", sorted(default_registry().presets()))
def test_a_job_resumes_at_once_when_its_machine_is_back(name: str, tmp_path: Path) -> None:
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
    # Synergy's rounds, of five minutes, are the only ones that no event starts.
    starts = Cause.CLUSTER_CHANGED in Profile.load(name).rounds.triggers(DEFAULT_TRIGGERS).on
    assert starts or name.startswith("synergy")
    assert finish == (500.0 if starts else 700.0), "it begins again, at 400 s or with the next round"
