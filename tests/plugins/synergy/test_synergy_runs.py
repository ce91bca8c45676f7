"""Whole runs under Synergy: no job is ever below its rate at the proportional share of the GPUs that it has."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded, KindProfiled
from eunomia.model.cluster import Cluster
from eunomia.model.kind_profiles import KnownRate
from eunomia.platform.profiles import Profile
from eunomia.testing.drive import Drive
from eunomia.units import AppId, JobId, Locality, UserId
from eunomia_plugins.synergy.matrices import Matrix
from strength import examples

CPUS = (1.0, 2.0, 4.0, 8.0)
MEMORY_GIB = (8.0, 16.0, 32.0)
CLUSTER = "3x4 V100 12cpu 64GiB"
SHARE = (3.0, 16.0)
SIZES = (1, 2, 4)

_STEPS = st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12)
_JOBS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from([1, 1, 1, 2, 4]), st.floats(20.0, 900.0), st.integers(0, 600).map(float)
    ),
    min_size=6,
    max_size=20,
)


def grid(steps: list[float]) -> np.ndarray:
    """Rates of one GPU [CPUs, memory] that fall in neither direction."""
    made: np.ndarray = 0.2 + np.cumsum(np.cumsum(np.array(steps).reshape(4, 3), axis=0), axis=1)
    return made


def profiled(kind: int, steps: list[float]) -> KindProfiled:
    rates = tuple(
        KnownRate(
            gpus=gpus,
            gpu_type="V100",
            locality=Locality.ISLAND,
            rate=gpus * float(rate),
            cpus=gpus * cpus,
            memory_gib=gpus * memory_gib,
        )
        for gpus in SIZES
        for cpus, row in zip(CPUS, grid(steps), strict=True)
        for memory_gib, rate in zip(MEMORY_GIB, row, strict=True)
    )
    return KindProfiled(kind=f"kind{kind}", rates=rates)


@pytest.mark.parametrize("preset", ["synergy", "synergy_greedy", "synergy_opt", "synergy_tetris"])
@settings(max_examples=examples(12), deadline=None)
@given(st.lists(_STEPS, min_size=3, max_size=3), _JOBS)
def test_no_job_is_ever_below_its_proportional_rate(
    preset: str, kinds: list[list[float]], jobs: list[tuple[int, int, float, float]]
) -> None:
    matrices = [Matrix(cpus=np.array(CPUS), memory_gib=np.array(MEMORY_GIB), rate=grid(steps)) for steps in kinds]
    script: list[tuple[float, Event]] = [(0.0, profiled(kind, steps)) for kind, steps in enumerate(kinds)]
    kind_of, work = {}, {}
    script.append((0.0, AppArrived(app=AppId("a"), user=UserId("u"))))
    for number, (kind, gpus, seconds, at) in enumerate(jobs):
        job = JobId(f"a/{number}")
        kind_of[job], work[job] = kind, seconds * gpus
        added = JobAdded(app=AppId("a"), job=job, least=gpus, most=gpus, kind=f"kind{kind}", iterations=1e6)
        script.append((at, added))
    cluster = Cluster.parse(CLUSTER)
    stages = Profile.load(preset).stages(cluster)
    checked = 0

    def watch(drive: Drive, decision: Decision) -> None:
        nonlocal checked
        assert not decision.faults
        state = drive.arbiter.state
        for lease in state.leases.values():
            if lease.job >= 0 and len(lease.gpus):
                cpus, memory_gib = (part.mean() for part in state.amounts.ordered(lease.gpus))
                matrix = matrices[kind_of[state.job_id(lease.job)]]
                assert matrix.at(cpus, memory_gib) >= matrix.at(*SHARE) * (1.0 - 1e-6)
                checked += 1
        drive.check_machines()

    Drive(Arbiter(cluster, stages, stages), work=work, watch=watch, keep=False).run(script, until=1e5)
    assert checked > 0
