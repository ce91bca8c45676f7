"""What an arbiter keeps does not depend on how many apps have ended, but for an outcome and a kind of job of each."""

from collections.abc import Iterator, Sized

from eunomia import Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, AppFinished, JobAdded, JobFinished, Released, Started
from eunomia.model.cluster import Cluster
from eunomia.store.state import State
from eunomia.units import AppId, Epoch, JobId, LeaseId, Seconds, UserId

PER_APP = {"names.outcomes", "names.kinds"}
"""What grows with each app: no second one takes its name, and its jobs have its name as their kind if none is given."""


def sizes(state: State) -> dict[str, int]:
    """Rows in use and entries by name."""
    found = {name: getattr(state, name).used for name in ("users", "apps", "jobs", "holdings")}
    parts = ("names", "reports", "owners", "waiting_jobs", "lease_ends", "amounts", "counters", "service", "capacity")
    for part, name, each in _entries(state, parts):
        found[f"{part}.{name}"] = len(each)
    return found | {"leases": len(state.leases), "changes": len(state.changes.rows)}


def _entries(state: State, parts: tuple[str, ...]) -> Iterator[tuple[str, str, Sized]]:
    for part in parts:
        made = getattr(state, part)
        for name in getattr(type(made), "__slots__", ()) or vars(made):
            each = getattr(made, name, None)
            if isinstance(each, dict | set | list | frozenset):
                yield part, name, each


def after(apps: int) -> dict[str, int]:
    """Sizes after so many apps have come and gone, two GPUs each."""
    cluster = Cluster.parse("1x4 V100")
    stages = Profile.load("default").stages(cluster)
    arbiter = Arbiter(cluster, stages, stages)
    for number in range(apps):
        now, app, job = 4.0 * number, AppId(f"a{number}"), JobId(f"a{number}/1")
        added = JobAdded(app=app, job=job, least=2, most=2)
        arbiter.step(Seconds(now), [AppArrived(app=app, user=UserId("u")), added])
        (lease,) = arbiter.state.leases.values()
        held = {"lease": LeaseId(lease.id), "epoch": Epoch(lease.epoch)}
        arbiter.step(Seconds(now + 1.0), [Started(**held)])
        arbiter.step(Seconds(now + 2.0), [JobFinished(job=job), AppFinished(app=app)])
        for leaving in list(arbiter.state.leases.values()):
            gpus = tuple(sorted(arbiter.state.owners.leaving[leaving.id]))
            released = Released(lease=LeaseId(leaving.id), epoch=Epoch(leaving.epoch), gpus=gpus)
            arbiter.step(Seconds(now + 3.0), [released])
    return sizes(arbiter.state)


def test_an_ended_app_leaves_its_outcome_and_its_kind_alone() -> None:
    few, many = after(50), after(550)
    grown = {name for name in many if name != "changes" and many[name] != few[name]}
    assert grown == PER_APP
    assert {many[name] - few[name] for name in PER_APP} == {500}
