"""What ``eunomia explain`` says of a job whose size changes while it runs."""

import pytest

from eunomia import Cluster, Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Transition
from eunomia.contract.events import AppArrived, AppFinished, Event, JobAdded, JobFinished, Released, Resized, Started
from eunomia.units import AppId, Epoch, JobId, Seconds, UserId
from eunomia_appmaster.explaining.explanations import describe
from eunomia_appmaster.explaining.spells import Spells, through_changes


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


class Lived:
    """An arbiter over four slots, and the periods of its jobs."""

    def __init__(self) -> None:
        cluster = Cluster.parse("1x4 V100")
        self.arbiter = Arbiter(cluster, Profile.load("max_min").stages(cluster), Profile.fallback().stages(cluster))
        self.orders: dict[str, Transition] = {}
        self.seen = Spells()

    def step(self, now: float, *events: Event) -> None:
        for order in self.arbiter.step(Seconds(now), events).transitions:
            self.orders[order.kind.value] = order
        self.seen.take(self.arbiter.view, now, events=events)

    def shrinks(self) -> None:
        """``long`` runs on four slots from 1 s on; at 2 s, it is ordered to give two of them to ``short``."""
        self.step(0.0, *_arrives("long"))
        self.step(1.0, Started(lease=self.orders["start"].lease, epoch=self.orders["start"].epoch))
        self.step(2.0, *_arrives("short"))
        shrink = self.orders["shrink"]
        self.step(2.5, Released(lease=shrink.lease, epoch=shrink.fence, gpus=tuple(shrink.leaving.tolist())))

    def of(self, job: str) -> list[tuple[float, float | None, str, int, str]]:
        spells = through_changes([spell for spell in self.seen.spells if spell.job == job])
        return [(spell.start, spell.end, spell.state, spell.slots, spell.text) for spell in spells]


def test_the_history_shows_a_live_change_as_two_sizes_and_no_start() -> None:
    lived = Lived()
    lived.shrinks()
    shrink, short = lived.orders["shrink"], lived.orders["start"]
    lived.step(3.0, Resized(lease=shrink.lease, epoch=shrink.epoch), Started(lease=short.lease, epoch=short.epoch))
    lived.step(4.0, JobFinished(job=JobId("short/1")), AppFinished(app=AppId("short")))
    epoch = Epoch(lived.arbiter.state.counters.last_epoch)
    lived.step(5.0, Released(lease=short.lease, epoch=epoch, gpus=tuple(short.gpus.tolist())))
    lived.step(7.0, Resized(lease=shrink.lease, epoch=lived.orders["grow"].epoch))
    assert lived.of("long/1") == [
        (0.0, 1.0, "starting", 0, ""),
        (1.0, 3.0, "running", 4, ""),
        (3.0, 7.0, "running", 2, "changed live from 4 slots to 2"),
        (7.0, None, "running", 4, "changed live from 2 slots to 4"),
    ]


def test_a_job_that_changes_its_size_by_a_restart_starts_again_in_its_history() -> None:
    lived = Lived()
    lived.shrinks()
    shrink = lived.orders["shrink"]
    lived.step(3.0, Started(lease=shrink.lease, epoch=shrink.epoch))
    assert lived.of("long/1") == [
        (0.0, 1.0, "starting", 0, ""),
        (1.0, 2.0, "running", 4, ""),
        (2.0, 3.0, "starting", 0, ""),
        (3.0, None, "running", 2, ""),
    ]


@pytest.mark.parametrize("ends", [True, False])
def test_a_shrink_that_the_jobs_end_or_the_journals_overtakes_is_no_start_of_a_job_that_changes_live(
    ends: bool,
) -> None:
    lived = Lived()
    lived.shrinks()
    lived.step(3.0, Resized(lease=lived.orders["shrink"].lease, epoch=lived.orders["shrink"].epoch))
    lived.step(4.0, *_arrives("third"))
    lived.step(4.0, *_arrives("fourth"))
    assert [spell.state for spell in lived.seen.spells if spell.job == "long/1"][-1] == "starting", "it is to shrink"
    if ends:
        lived.step(5.0, JobFinished(job=JobId("long/1")), AppFinished(app=AppId("long")))
    (_, *others) = lived.of("long/1")
    assert [each[2:4] for each in others if each[2] != "stopping"] == [("running", 4), ("running", 2)]
    assert others[1][:2] == (3.0, 5.0 if ends else None)
