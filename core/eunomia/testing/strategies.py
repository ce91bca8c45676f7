"""Hypothesis strategies for random clusters, workloads and scripts with faults and delays that drive an arbiter.

```python
@given(scenario=scenarios())
def test_mine(scenario: Scenario) -> None:
    arbiter = Arbiter(scenario.cluster, stages, fallback, seed=scenario.seed)
    Drive(arbiter, work=dict(scenario.work), delays=scenario.delays, seed=scenario.seed).run(scenario.script)
```

Only this module imports Hypothesis, which is a development dependency.
"""

import dataclasses

import numpy as np
from hypothesis import strategies as st

from eunomia.contract.events import (
    AppArrived,
    Event,
    JobAdded,
    JobFailed,
    MachineBack,
    MachineDraining,
    MachineJoined,
    MachineKept,
    MachineLeft,
    MachineLost,
)
from eunomia.model.cluster import Cluster, Machine
from eunomia.testing.drive import Delays
from eunomia.units import NEVER, AppId, JobId, Seconds, UserId


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster, the events that occur on it, and the delays of the executor.

    Attributes:
        machines: number of GPUs of each machine.
        script: events with their times in seconds.
        work: run time of each job on one GPU in seconds.
        delays: delays of the executor.
        seed: seed of all other random draws.
    """

    machines: tuple[int, ...]
    script: tuple[tuple[float, Event], ...]
    work: tuple[tuple[JobId, float], ...]
    delays: Delays
    seed: int

    @property
    def cluster(self) -> Cluster:
        """Return the cluster of the machines, in two racks."""
        return cluster_of(self.machines)


def cluster_of(machines: tuple[int, ...]) -> Cluster:
    """Return a cluster of machines ``n0``, ``n1``, ... with these numbers of GPUs, alternating between two racks."""
    made = [Machine(name=f"n{i}", gpu_type="V100", gpus=gpus, rack=f"r{i % 2}") for i, gpus in enumerate(machines)]
    return Cluster.build(made)


def delays() -> st.SearchStrategy[Delays]:
    """Return a strategy for the delays of an executor: none, short or long, with or without lost acknowledgements."""
    delay = st.sampled_from([0.0, 0.3, 3.0])
    return st.builds(Delays, order=delay, start=delay, release=delay, lost=st.sampled_from([0.0, 0.3]))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a cluster, a workload, failures of jobs, delays, and machines that are lost, drain, leave and join."""
    machines = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    seed = draw(st.integers(0, 2**16))
    luck = np.random.default_rng(seed)
    script: list[tuple[float, Event]] = []
    work: dict[JobId, float] = {}
    for number in range(draw(st.integers(1, 6))):
        made = _app(luck, number, draw(st.integers(1, 4)), max(machines), sum(machines), fails=0.2)
        script += made[0]
        work |= made[1]
    for time in luck.uniform(5, 80, size=draw(st.integers(0, 3))).tolist():
        machine = f"n{luck.integers(len(machines))}"
        script += [
            (time, MachineLost(machine=machine)),
            (time + float(luck.uniform(1, 30)), MachineBack(machine=machine)),
        ]
    for number, time in enumerate(luck.uniform(5, 80, size=draw(st.integers(0, 3))).tolist()):
        machine, later = f"n{luck.integers(len(machines))}", time + float(luck.uniform(1, 30))
        size, kind = int(luck.integers(1, 5)), ("V100", "A100")[int(luck.integers(2))]
        cpus, memory_gib = 8.0 * size, 32.0 * size
        until = NEVER if luck.random() < 0.5 else Seconds(later)
        leaves = MachineLeft(machine=machine) if luck.random() < 0.7 else MachineKept(machine=machine)
        script += [
            (time, MachineJoined(machine=f"late{number}", gpu_type=kind, gpus=size, cpus=cpus, memory_gib=memory_gib)),
            (time, MachineDraining(machine=machine, until=until)),
            (later, leaves),
            (later + 5.0, _again(cluster_of(machines), machine)),
        ]
    return Scenario(machines, tuple(script), tuple(work.items()), draw(delays()), seed)


def _again(cluster: Cluster, name: str) -> MachineJoined:
    """Return the event with which a machine joins again; the arbiter refuses it if the machine has not left."""
    machine = cluster.machines[cluster.number_of(name)]
    same = {field.name: getattr(machine, field.name) for field in dataclasses.fields(machine) if field.name != "name"}
    return MachineJoined(machine=name, **same)


def _app(
    luck: np.random.Generator, number: int, jobs: int, widest: int, largest: int, *, fails: float = 0.0
) -> tuple[list[tuple[float, Event]], dict[JobId, float]]:
    """Draw an app with its jobs, some of which fail during the run.

    The smallest size of a gang is at most ``widest`` GPUs, its largest at most ``largest``.
    """
    app, time = AppId(f"app{number}"), float(luck.uniform(0, 40))
    script: list[tuple[float, Event]] = [
        (time, AppArrived(app=app, user=UserId("ana"), divides=bool(luck.random() < 0.8)))
    ]
    work: dict[JobId, float] = {}
    for trial in range(jobs):
        least = int(luck.integers(1, widest + 1))
        most = min(least + int(luck.integers(0, 4)), largest)
        job = JobId(f"{app}/{trial}")
        script.append((time, JobAdded(job=job, app=app, least=min(least, most), most=most)))
        work[job] = float(luck.uniform(1, 60))
        if fails and luck.random() < fails:
            script.append((time + float(luck.uniform(0, 60)), JobFailed(job=job, again_in=Seconds(5.0))))
    return script, work
