"""Single GPUs of a machine that go down and come back: gangs leave, what fits goes on, and they are given out again."""

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.events import AppArrived, Event, JobAdded, MachineBack, MachineLost, Released, Started
from eunomia.contract.verdicts import Reason
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Seconds, UserId


def fresh() -> Arbiter:
    cluster = Cluster.parse("1x4 V100")
    arbiter = Arbiter(cluster, Profile.load("default").stages(cluster), Profile.fallback().stages(cluster))
    arbiter.strict = True
    return arbiter


def arrive(name: str, gpus: int) -> list[Event]:
    job = JobAdded(job=JobId(f"{name}/1"), app=AppId(name), least=gpus, most=gpus)
    return [AppArrived(app=AppId(name), user=UserId("ana"), divides=False), job]


def begin(arbiter: Arbiter, now: float, *events: Event) -> Decision:
    """A step, and what it starts runs."""
    decision = arbiter.step(Seconds(now), events)
    for order in decision.transitions:
        arbiter.step(Seconds(now), [Started(lease=order.lease, epoch=order.epoch)])
    return decision


def machine(arbiter: Arbiter) -> str:
    return arbiter.state.cluster.machines[0].name


def test_a_gang_that_loses_a_gpu_waits_and_a_smaller_job_gets_the_rest() -> None:
    arbiter = fresh()
    begin(arbiter, 0.0, *arrive("wide", 4))
    lease = next(iter(arbiter.state.leases.values()))
    arbiter.step(Seconds(1.0), [MachineLost(machine=machine(arbiter), gpus=(3,))])
    released = Released(lease=lease.id, epoch=arbiter.state.counters.last_epoch, gpus=(0, 1, 2))
    begin(arbiter, 2.0, released, *arrive("narrow", 3))
    held = arbiter.state.holdings.live
    assert [arbiter.state.app_id(app) for app in held.app[:3].tolist()] == ["narrow"] * 3
    row = arbiter.state.job_row(JobId("wide/1"))
    reason = arbiter.state.reason(row)
    assert reason is Reason.NO_SIZE_FITS
    decision = begin(arbiter, 3.0, MachineBack(machine=machine(arbiter), gpus=(3,)), *arrive("last", 1))
    assert [(order.kind, order.gpus.tolist()) for order in decision.transitions] == [(TransitionKind.START, [3])]


def test_gpus_of_another_machine_are_refused() -> None:
    arbiter = fresh()
    decision = arbiter.step(Seconds(0.0), [MachineLost(machine=machine(arbiter), gpus=(4,))])
    assert "GPUs of its machine, 0 to 3" in decision.faults[0].what
