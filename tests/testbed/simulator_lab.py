"""Small workloads for tests of the simulator, and its engine with a watch over what is really so."""

from collections.abc import Callable, Sequence

import numpy as np

from eunomia.contract.decisions import Decision
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.round.invariants import check_state
from eunomia_testbed.simulator import SimulatedRun, SimulationOptions, SimulationState, assemble
from eunomia_testbed.workload import AppColumns, JobColumns, UserColumns, Workload

Row = tuple[float, int, float]
"""Arrival, GPUs, seconds at those GPUs."""


def runs(rows: Sequence[Row], *, names: Sequence[str] | None = None, **more: object) -> Workload:
    """A workload of durations: one iteration a second."""
    arrivals, gpus, seconds = (np.array(column) for column in zip(*rows, strict=True))
    return Workload.single_jobs(
        "tiny",
        ids=list(names or "abcdefghijklmnopqrstuvwxyz"[: len(rows)]) if len(rows) <= 26 else _names(len(rows)),
        arrival_seconds=arrivals.astype(float),
        gpus=gpus.astype(np.int64),
        iterations=seconds.astype(float),
        seconds_per_iteration=np.ones(len(rows)),
        **more,
    )


def _names(count: int) -> list[str]:
    return [f"app{number:05d}" for number in range(count)]


def watched(
    workload: Workload,
    cluster: str | Cluster,
    policy: str | Profile,
    options: SimulationOptions | None = None,
    **more: object,
) -> SimulatedRun:
    """Run, with the arbiter's state checked after every step."""
    there = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    profile = Profile.load(policy) if isinstance(policy, str) else policy
    engine = assemble(workload, there, profile, options or SimulationOptions(), observers=[AfterStep(check)], **more)  # type: ignore[arg-type]
    return engine.run()


class AfterStep:
    """An observer that calls a function after every step."""

    def __init__(self, call: Callable[[SimulationState, Decision], None]) -> None:
        self._call = call

    def stepped(self, sim: SimulationState, decision: Decision) -> None:
        self._call(sim, decision)

    def ended(self, sim: SimulationState) -> None:
        pass


def check(sim: SimulationState, decision: Decision) -> None:
    """The arbiter's state is sound, and no stage failed."""
    check_state(sim.arbiter.state)
    assert not decision.faulty, decision.faults


def several(apps: Sequence[tuple[float, Sequence[tuple[int, int, float]]]]) -> Workload:
    """Apps that arrive, each with jobs of least and most GPUs and of seconds at most GPUs."""
    jobs = [(app, *job) for app, (_, jobs) in enumerate(apps) for job in jobs]
    number = [sum(one[0] == job[0] for one in jobs[: row + 1]) for row, job in enumerate(jobs)]
    arrival = np.array([time for time, _ in apps])
    return Workload(
        name="several",
        users=UserColumns(id=["ana"], weight=np.ones(1)),
        apps=AppColumns(
            id=[f"app{app}" for app in range(len(apps))],
            user=np.zeros(len(apps), np.int64),
            weight=np.ones(len(apps)),
            arrival_seconds=arrival,
        ),
        jobs=JobColumns(
            id=[f"app{job[0]}/{count}" for job, count in zip(jobs, number, strict=True)],
            app=np.array([job[0] for job in jobs], dtype=np.int64),
            arrival_seconds=arrival[[job[0] for job in jobs]],
            least=np.array([job[1] for job in jobs], dtype=np.int64),
            most=np.array([job[2] for job in jobs], dtype=np.int64),
            iterations=np.array([job[3] for job in jobs]),
            seconds_per_iteration=np.ones(len(jobs)),
            model=np.full(len(jobs), -1, np.int64),
        ),
    )
