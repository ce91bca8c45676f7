"""What ``eunomia explain`` says of a job whose size changes while it runs."""

from eunomia import Cluster, Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, AppFinished, Event, JobAdded, JobFinished, Released, Resized, Started
from eunomia.units import AppId, Epoch, JobId, Seconds, UserId
from eunomia_appmaster.explaining.explanations import describe


def _arrives(name: str) -> tuple[Event, ...]:
    app, job = AppId(name), JobId(f"{name}/1")
    return (AppArrived(app=app, user=UserId(name), divides=False), JobAdded(job=job, app=app, least=1, most=4))


def test_a_job_that_changes_live_has_started_once_and_its_growth_is_named_until_it_is_made() -> None:
    cluster = Cluster.parse("1x4 V100")
    arbiter = Arbiter(cluster, Profile.load("max_min").stages(cluster), Profile.fallback().stages(cluster))

    def step(now: float, *events: Event) -> None:
        for order in arbiter.step(Seconds(now), events).transitions:
            orders[order.kind.value] = order

    orders = {}
    step(0.0, *_arrives("long"))
    step(1.0, Started(lease=orders["start"].lease, epoch=orders["start"].epoch))
    step(2.0, *_arrives("short"))
    shrink, short = orders["shrink"], orders["start"]
    step(3.0, Released(lease=shrink.lease, epoch=shrink.fence, gpus=tuple(shrink.leaving.tolist())))
    step(3.0, Resized(lease=shrink.lease, epoch=shrink.epoch), Started(lease=short.lease, epoch=short.epoch))
    assert (describe(arbiter.view, 0, 3.0).text, describe(arbiter.view, 0, 3.0).slots) == ("", 2)
    step(4.0, JobFinished(job=JobId("short/1")), AppFinished(app=AppId("short")))
    epoch = Epoch(arbiter.state.counters.last_epoch)
    step(5.0, Released(lease=short.lease, epoch=epoch, gpus=tuple(short.gpus.tolist())))
    before = describe(arbiter.view, 0, 6.0)
    assert before.text == "A change to 4 slots is ordered; until it is made, the job keeps its old size."
    step(7.0, Resized(lease=shrink.lease, epoch=orders["grow"].epoch))
    after = describe(arbiter.view, 0, 7.0)
    assert (before.starts, after.starts, after.text) == (1, 1, "")
    assert after.seconds == 6.0, "it has run since its start at 1 s, at three sizes"
