"""Why simulated jobs wait: what was told when they lost their GPUs holds while they do."""

import numpy as np
import pytest

from eunomia_testbed import Workload, simulate
from eunomia_testbed.simulator import SimulationOptions
from eunomia_testbed.simulator.options import Costs


@pytest.mark.parametrize("checkpoint", [0.0, 5.0])
def test_a_preempted_job_waits_for_the_reason_of_its_preemption(checkpoint: float) -> None:
    workload = Workload.single_jobs(
        "three",
        ids=["long", "short", "mid"],
        arrival_seconds=np.array([0.0, 10.0, 11.0]),
        gpus=np.array([1, 1, 1]),
        iterations=np.array([1000.0, 50.0, 200.0]),
        seconds_per_iteration=np.ones(3),
    )
    options = SimulationOptions(costs=Costs(checkpoint=checkpoint))
    waits = simulate(workload, "1x1 V100", policies=["srtf"], options=options).waits
    found = {row["job"]: row for row in waits.iter_rows(named=True)}
    assert (found["long"]["start_seconds"], found["long"]["end_seconds"]) == (10.0 + checkpoint, 260.0 + checkpoint)
    assert (found["long"]["reason"], found["long"]["plugin"]) == ("outranked", "ordered")
    assert (found["mid"]["reason"], found["mid"]["end_seconds"]) == ("outranked", 60.0 + checkpoint)
