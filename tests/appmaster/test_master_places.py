"""When an app's master moves since it does not reach a node, and what becomes of slots that it does not reach."""

from pathlib import Path
from typing import Any

import pytest

from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, Event, GpusReturned, JobAdded, MachineBack, Started
from eunomia.journal.journal import Journal
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, Epoch, JobId, LeaseId, Seconds, UserId
from eunomia_appmaster.protocol import launcher_pb2 as launcher
from eunomia_appmaster.service.layout import Layout, Place
from eunomia_appmaster.service.left_out import IDLE_SECONDS, LeftOut, LeftOutNodes
from eunomia_appmaster.service.master_places import MOVE_SECONDS, MasterPlaces
from eunomia_appmaster.service.node_leases import NodeLeases
from eunomia_appmaster.service.nodes import Nodes

SLOTS = {"a": 1, "b": 3, "c": 1}


class World:
    """Nodes a, b and c with 1, 3 and 1 slots, an arbiter, and an app with jobs of one slot each."""

    def __init__(self, jobs: int, folder: Path) -> None:
        journal = Journal.open(folder / f"journal-{jobs}.sqlite", durable=False)
        cluster = Cluster.parse("1x1 cpu, 1x3 cpu, 1x1 cpu")
        places = tuple(Place(node=node, slot=slot) for node, slots in SLOTS.items() for slot in range(slots))
        leases = NodeLeases(journal, Seconds(90.0), Seconds(900.0))
        self.nodes = Nodes(None, Seconds(90.0), leases)
        for node, slots in SLOTS.items():
            request = launcher.RegisterNodeRequest(node=node, launcher_id="x")
            request.slots.extend(launcher.Slot(index=slot, gpu_type="cpu") for slot in range(slots))
            self.nodes.add(request)
        self.nodes.layout = Layout.made(cluster, places)
        self.arbiter = Arbiter(cluster, Profile.load("default").stages(), Profile.fallback().stages())
        self.left_out = LeftOutNodes(self.nodes)
        self.left_out.serve(self.arbiter)
        self.places = MasterPlaces(self.nodes, self.left_out)
        self.now = 0.0
        self.step(AppArrived(app=AppId("ana"), user=UserId("ana")))
        self.step(*(JobAdded(job=JobId(f"ana/{number}"), app=AppId("ana"), least=1, most=1) for number in range(jobs)))
        for lease in list(self.arbiter.view.leases()):
            self.step(Started(lease=LeaseId(lease.id), epoch=Epoch(lease.epoch)))

    def step(self, *events: Event) -> Any:
        self.now += 1.0
        decision = self.arbiter.step(Seconds(self.now), events)
        assert not decision.faults
        return decision

    def better(self, app: Any, now: float) -> str:
        return self.places.better(self.arbiter.view, app, now)

    def hears(self, *pairs: tuple[str, str]) -> list[MachineBack]:
        made = [LeftOut(node=node, why="-", other=other, by_master=True, since=100.0) for node, other in pairs]
        return self.left_out.hear("ana", made)

    def held(self) -> list[str]:
        layout, gpus = self.nodes.layout, self.arbiter.view.gpus
        assert layout is not None
        return [layout.places[gpu].node for gpu in range(5) if gpus.app[gpu] != -1]


class App:
    """What is read of an app."""

    def __init__(self, node: str) -> None:
        self.name, self.node = "ana", node


@pytest.fixture
def full(tmp_path: Path) -> World:
    """The app holds all slots."""
    return World(5, tmp_path)


def test_an_app_master_moves_to_the_node_that_reaches_most_of_its_slots(full: World) -> None:
    app = App("a")
    assert full.better(app, 200.0) == "", "it reaches all"
    full.hears(("b", "a"))
    assert full.better(app, 99.0 + MOVE_SECONDS) == "", "not for a moment's fault"
    assert full.better(app, 100.0 + MOVE_SECONDS) == "c", "which reaches all, as far as is known"
    full.hears(("b", "a"), ("b", "c"))
    assert full.better(app, 200.0) == "b"
    assert full.better(App("b"), 200.0) == "", "what another master found says nothing of its own way"
    full.hears(("a", "b"), ("c", "b"))
    assert full.better(App("b"), 200.0) == "", "it reaches most from where it is"


def test_an_app_master_does_not_move_away_from_its_running_jobs(tmp_path: Path) -> None:
    world = World(0, tmp_path)
    world.hears(("b", "a"), ("b", "c"))
    assert world.better(App("a"), 200.0) == "b", "it holds nothing: more slots are reached there"
    world.step(JobAdded(job=JobId("ana/1"), app=AppId("ana"), least=1, most=1))
    assert world.held() in (["a"], ["c"]), "the arbiter gives it none of b"
    assert world.better(App("a"), 200.0) == ""


def test_unreachable_slots_go_to_other_apps_until_the_check_passes(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    world, other = World(0, tmp_path), World(0, tmp_path / "other")
    world.hears(("b", "a"))
    world.step(*(JobAdded(job=JobId(f"ana/{number}"), app=AppId("ana"), least=1, most=1) for number in range(5)))
    assert sorted(world.held()) == ["a", "c"]
    world.step(AppArrived(app=AppId("ben"), user=UserId("ben")))
    world.step(JobAdded(job=JobId("ben/1"), app=AppId("ben"), least=3, most=3))
    assert sorted(world.held()) == ["a", "b", "b", "b", "c"]
    assert world.hears(("b", "a")) == []
    other.hears(("b", "a"))
    other.step(*(JobAdded(job=JobId(f"ana/{number}"), app=AppId("ana"), least=1, most=1) for number in range(5)))
    back = other.hears()
    assert [type(event) for event in back] == [MachineBack]
    other.step(*back)
    assert sorted(other.held()) == ["a", "b", "b", "b", "c"]


def test_idle_slots_that_an_app_master_cannot_reach_are_returned(full: World) -> None:
    states = [launcher.SlotState(slot=slot, busy=slot == 0) for slot in range(3)]
    known = full.nodes.get("b")
    assert known is not None
    known.hear((), (), states)
    full.hears(("b", "a"))
    assert full.left_out.idle(10.0) == []
    assert full.left_out.idle(9.0 + IDLE_SECONDS) == []
    assert full.left_out.idle(10.0 + IDLE_SECONDS) == [GpusReturned(app=AppId("ana"), gpus=(2, 3))]
    known.hear((), (), [launcher.SlotState(slot=2, busy=True)])
    assert full.left_out.idle(11.0 + IDLE_SECONDS) == [GpusReturned(app=AppId("ana"), gpus=(2,))]
    full.left_out.keep_only([])
    assert full.left_out.idle(90.0) == []
    assert full.left_out.of("ana") == ()
