"""The keeper: as many nodes as are wanted, whatever an engine says late, repeatedly, wrongly or not at all."""

import random
import threading

import pytest
from structlog.testing import capture_logs
from tests.engines.engine_world import Truth, World, WorldArbiter, WorldPilots

from eunomia.errors import EunomiaError
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_engines.engine import EngineSilentError, NodeState
from eunomia_engines.head.arbiter import need_of
from eunomia_engines.keeper.demand import AppNeed, Demand
from eunomia_engines.keeper.keeper import LONGEST_PAUSE_SECONDS, Keeper
from eunomia_engines.keeper.plan import Plan, Times
from eunomia_engines.testing.fake import FakeEngine

TIMES = Times(drain=300.0, margin=60.0, idle=600.0)
HISTORIES, MANY_HISTORIES = 1000, 10_000
LOOKS = 12


def keeper_of(world: World, least: int, most: int) -> Keeper:
    """A keeper of a world's nodes."""
    return Keeper(
        FakeEngine(world),
        WorldArbiter(world),
        WorldPilots(world),
        Demand(least, most, 60.0, group=world.group),
        TIMES,
        clock=lambda: world.now,
    )


def look(world: World, keeper: Keeper, seconds: float = 30.0) -> Plan | None:
    """Let time pass, and let the keeper look once; None: a side did not answer."""
    world.now += seconds
    world.sync()
    try:
        return keeper.look()
    except EunomiaError:
        return None


def settle(world: World, keeper: Keeper, looks: int = 4) -> None:
    """Let the engine give what was asked for, and say what is true."""
    for _ in range(looks):
        for node in world.truths:
            if node.state is NodeState.ASKED:
                world.give(node)
            world.tell(node)
        look(world, keeper)


def running(world: World) -> list[Truth]:
    """The nodes that run."""
    return [node for node in world.truths if node.state is NodeState.RUNS]


def test_as_many_nodes_as_are_wanted_are_asked_for_once() -> None:
    world = World()
    keeper = keeper_of(world, 3, 3)
    assert [getattr(look(world, keeper), "ask", None) for _ in range(3)] == [3, 0, 0]
    settle(world, keeper)
    assert len(running(world)) == 3 and world.asked == 3


def test_a_node_whose_end_is_near_is_drained_and_replaced() -> None:
    world = World()
    keeper = keeper_of(world, 1, 1)
    look(world, keeper)
    settle(world, keeper, 1)
    (first,) = running(world)
    first.held = 4
    world.now = first.ends_at - TIMES.drain - 60.0
    assert look(world, keeper, 30.0) == Plan()
    made = look(world, keeper, 31.0)
    assert made is not None and made.ask == 1
    (drain,) = made.drains
    assert drain.name == first.name and drain.within == pytest.approx(first.ends_at - world.now - TIMES.margin)
    assert world.members[first.name].state == "draining"


def test_more_nodes_are_asked_for_once_slots_were_short_for_the_limit_and_idle_ones_are_given_back() -> None:
    world = World()
    keeper = keeper_of(world, 1, 3)
    look(world, keeper)
    settle(world, keeper, 1)
    world.usable = 9
    running(world)[0].held = 4
    asked = [getattr(look(world, keeper), "ask", None) for _ in range(3)]
    assert asked == [0, 0, 2], "after 60 s, three nodes of four slots for nine"
    settle(world, keeper, 2)
    assert len(running(world)) == 3
    world.usable = 0
    for node in running(world):
        node.held = 0
    for _ in range(int(TIMES.idle / 30.0) + 4):
        settle(world, keeper, 1)
    assert len(running(world)) == 1
    assert world.wrong == []


def test_a_node_that_still_waits_is_withdrawn_first() -> None:
    world = World()
    keeper = keeper_of(world, 1, 3)
    look(world, keeper)
    settle(world, keeper, 1)
    world.usable, running(world)[0].held = 9, 4
    for _ in range(3):
        look(world, keeper)
    world.usable = 4
    look(world, keeper)
    assert sorted(world.cancelled) == ["n1", "n2"]


def test_a_node_that_could_not_be_withdrawn_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    keeper = keeper_of(world, 1, 2)
    look(world, keeper)
    settle(world, keeper, 1)
    world.usable, running(world)[0].held = 9, 4
    for _ in range(3):
        look(world, keeper)
    world.usable = 4

    def silent(self: FakeEngine, node: str) -> None:
        raise EngineSilentError("the engine must answer")

    with monkeypatch.context() as patched:
        patched.setattr(FakeEngine, "give_back", silent)
        assert look(world, keeper) is None
    settle(world, keeper, 1)
    world.usable = 9
    for node in running(world):
        node.held = 4
    for _ in range(4):
        look(world, keeper)
    assert (len(running(world)), world.asked) == (2, 2), "it began, and no third one is asked for"


def idle_for_long(world: World, keeper: Keeper) -> None:
    """Let nodes be idle for longer than the limit."""
    for _ in range(int(TIMES.idle / 30.0) + 4):
        settle(world, keeper, 1)


def test_asks_are_for_whole_groups_within_the_most() -> None:
    world = World(group=3, hosts=9)
    keeper = keeper_of(world, 3, 6)
    look(world, keeper)
    settle(world, keeper, 1)
    assert world.asked == 3 and {node.group for node in running(world)} == {"g0"}
    world.usable = 13  # four nodes of four slots
    for node in running(world):
        node.held = 4
    asked = [getattr(look(world, keeper), "ask", None) for _ in range(4)]
    assert asked == [0, 0, 3, 0], "a group more for one node more"
    settle(world, keeper, 1)
    world.usable = 400
    assert [getattr(look(world, keeper), "ask", None) for _ in range(4)] == [0, 0, 0, 0]
    assert world.asked == 6


def test_a_group_is_given_back_once_all_its_nodes_are_idle_and_not_needed() -> None:
    world = World(group=2, hosts=8)
    keeper = keeper_of(world, 2, 4)
    look(world, keeper)
    settle(world, keeper, 1)
    world.usable = 13
    for node in running(world):
        node.held = 4
    for _ in range(3):
        look(world, keeper)
    settle(world, keeper, 1)
    assert len(running(world)) == 4
    for index, node in enumerate(running(world)):
        node.held = 4 * (index % 2)  # a node of each group works
    world.usable = 8
    idle_for_long(world, keeper)
    assert len(running(world)) == 4 and world.cancelled == []
    running(world)[1].held, world.usable = 0, 4
    idle_for_long(world, keeper)
    assert [node.held for node in running(world)] == [0, 4], "the other group stays, although a node of it is idle"
    assert world.wrong == []


def test_a_group_that_waits_is_withdrawn_as_a_whole() -> None:
    world = World(group=2, hosts=8)
    keeper = keeper_of(world, 2, 6)
    look(world, keeper)
    settle(world, keeper, 1)
    world.usable = 20
    for node in running(world):
        node.held = 4
    for _ in range(3):
        look(world, keeper)
    assert world.asked == 6
    world.usable = 9  # three nodes: one of the four that wait is needed, so its group stays
    look(world, keeper)
    assert sorted(world.cancelled) == ["n2", "n3"] or sorted(world.cancelled) == ["n4", "n5"]


def test_a_group_is_drained_and_replaced_as_a_whole() -> None:
    world = World(group=2, hosts=8)
    keeper = keeper_of(world, 2, 2)
    look(world, keeper)
    settle(world, keeper, 1)
    first = running(world)
    world.now = first[0].ends_at - TIMES.drain - 30.0
    made = look(world, keeper, 31.0)
    assert made is not None and made.ask == 2
    assert [drain.name for drain in made.drains] == [node.name for node in first]
    assert len({(drain.within, drain.why) for drain in made.drains}) == 1
    assert made.drains[0].why == "its time ends in 299 s, with all nodes of g0"


def test_a_group_that_has_lost_a_node_counts_as_the_nodes_that_are_left() -> None:
    world = World(group=3, hosts=9)
    keeper = keeper_of(world, 3, 6)
    look(world, keeper)
    settle(world, keeper, 1)
    lost = running(world)[0]
    world.over(lost, clean=False)
    world.tell(lost)
    made = look(world, keeper)
    assert made is not None and made.ask == 3, "two are left, and a whole group is within the most"
    settle(world, keeper, 1)
    assert len(running(world)) == 5
    assert look(world, keeper) == Plan(), "a third group would be one node beyond the most"
    idle_for_long(world, keeper)
    assert len(running(world)) == 3, "the group of two is given back, which leaves the least"
    assert world.wrong == []


def test_a_group_is_not_given_back_while_jobs_hold_slots_on_a_node_that_only_looks_lost() -> None:
    world = World(group=2, hosts=8)
    keeper = keeper_of(world, 2, 4)
    look(world, keeper)
    settle(world, keeper, 1)
    lost, _ = running(world)
    lost.held = 4
    for _ in range(int(TIMES.idle / 30.0) + 6):
        for node in world.truths:
            if node.state is NodeState.ASKED:
                world.give(node)
            world.tell(node)
        lost.said = (NodeState.ENDED,)
        look(world, keeper)
    assert len(running(world)) == 4 and lost.state is NodeState.RUNS
    assert world.wrong == []


def test_a_silent_engine_changes_nothing() -> None:
    world = World(is_silent=True)
    keeper = keeper_of(world, 2, 2)
    assert [look(world, keeper) for _ in range(3)] == [None, None, None]
    assert world.asked == 0


def test_a_keeper_goes_on_after_a_fault_of_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    world, stopped = World(), threading.Event()
    keeper, looks = keeper_of(world, 1, 1), list[int]()

    def ask(self: FakeEngine, count: int) -> list[str]:
        looks.append(count)
        if len(looks) == 2:
            stopped.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FakeEngine, "ask", ask)
    keeper.run(stopped, look_seconds=0.0)
    assert looks == [1, 1] and "No space left on device" in keeper.fault


def test_after_a_refusal_the_pauses_grow() -> None:
    world = World(refusal="QOSMaxJobsPerUserLimit")
    keeper = keeper_of(world, 2, 2)
    look(world, keeper)
    assert "QOSMaxJobsPerUserLimit" in keeper.fault
    for _ in range(8):
        look(world, keeper, LONGEST_PAUSE_SECONDS + 1.0)
    world.refusal = ""
    look(world, keeper, LONGEST_PAUSE_SECONDS - 1.0)
    assert world.asked == 0
    look(world, keeper, 2.0)
    assert world.asked == 2


def test_nodes_that_end_before_their_launcher_begins_are_not_asked_for_without_a_pause() -> None:
    world = World()
    keeper = keeper_of(world, 1, 1)
    for _ in range(20):
        look(world, keeper)
        for node in world.truths:
            node.state, node.said = NodeState.ENDED, (NodeState.ENDED,)
    assert world.asked <= 6, "in ten minutes"


def test_a_node_that_only_looks_lost_is_replaced_and_stays_in_the_arbiter() -> None:
    world = World()
    keeper = keeper_of(world, 1, 1)
    look(world, keeper)
    settle(world, keeper, 1)
    (first,) = running(world)
    first.said, first.held = (NodeState.ENDED,), 4
    made = look(world, keeper)
    assert made is not None and made.ask == 1 and made.gone == ()
    assert first.name in world.members


def test_a_node_that_ended_everything_leaves_the_arbiter() -> None:
    world = World()
    keeper = keeper_of(world, 1, 1)
    look(world, keeper)
    settle(world, keeper, 1)
    (first,) = running(world)
    world.over(first, clean=True)
    world.tell(first)
    made = look(world, keeper)
    assert made is not None and made.gone == (first.name,)


def test_demand_needs_no_more_than_the_most_and_no_less_than_the_least() -> None:
    demand = Demand(2, 4, 0.0)
    assert demand.wanted(0.0, [], slots=0, nodes=0) == 2
    assert demand.wanted(0.0, [AppNeed(usable=100, held=0)], slots=8, nodes=2) == 4
    assert demand.wanted(1.0, [AppNeed(usable=12, held=8)], slots=8, nodes=2) == 3
    assert demand.wanted(2.0, [AppNeed(usable=1, held=1)], slots=16, nodes=4) == 2


def test_jobs_that_wait_need_slots_that_the_cluster_never_had() -> None:
    search = need_of(pb.App(max_slots=2, slots=2, waiting=6, running=2))
    assert (search.usable, search.held) == (8, 2)
    demand = Demand(1, 8, 0.0)
    assert demand.wanted(0.0, [search], slots=2, nodes=1) == 4
    gang = need_of(pb.App(max_slots=8, slots=0, waiting=1))
    assert (gang.usable, gang.held) == (8, 0)


def history(seed: int) -> list[str]:
    """Return what went wrong in a random history, whose engine is late, repeats, loses and contradicts.

    Every other engine gives nodes together, two or three at a time.
    """
    chance = random.Random(seed)
    group = chance.choice([1, 1, 2, 3])
    world = World(chance=chance, length=chance.choice([400.0, 1200.0, 3600.0]), group=group, hosts=4 * group)
    least = group * chance.randint(1, 3)
    most = least + group * chance.randint(0, 2)
    keeper = keeper_of(world, least, most)
    for _ in range(LOOKS):
        for node in world.truths:
            disturb(world, node)
        lose_together(world)
        world.is_silent, world.refusal = chance.random() < 0.1, chance.choice([""] * 9 + ["no more"])
        world.usable = chance.choice([0, 4, 12, 40])
        look(world, keeper, chance.choice([5.0, 30.0, 300.0]))
        history_is_wrong(world, most)
    return [f"history {seed}: {wrong}" for wrong in world.wrong]


def history_is_wrong(world: World, most: int) -> None:
    """Note in the world that more nodes were asked for than are wanted and were lost."""
    world.lost |= {node.id for node in world.truths if _does_not_count(world, node)}
    if world.asked % world.group:
        world.wrong.append(f"{world.asked} nodes were asked for, which are no whole groups of {world.group}")
    if world.asked > most + len(world.lost):
        world.wrong.append(f"{world.asked} nodes were asked for, {len(world.lost)} were lost, {most} are wanted")


def _does_not_count(world: World, node: Truth) -> bool:
    ends = node.said != (NodeState.ASKED,) and node.ends_at - world.now <= TIMES.drain
    is_over = len(set(node.said)) == 1 and node.said[0] in (NodeState.ENDS, NodeState.ENDED)
    return ends or is_over or not node.said or node.id in world.cancelled


def disturb(world: World, node: Truth) -> None:
    """Change what is true of a node, and what the engine says of it."""
    chance = world.chance
    draw = chance.random()
    if node.state is NodeState.ASKED and draw < 0.5:
        world.give(node)
    elif node.state is NodeState.RUNS:
        node.held = chance.choice([0, 0, 2, 4])
        if draw < 0.05 or world.now >= node.ends_at:
            world.over(node, clean=chance.random() < 0.7)
    elif node.state is NodeState.ENDED and node.lives and draw < 0.2:
        node.lives, node.held = False, 0  # its processes end later
    if chance.random() < 0.7:
        world.tell(node)
    elif chance.random() < 0.1:
        node.said = tuple(chance.choices(list(NodeState), k=chance.choice([1, 1, 2])))  # wrong, or two things
    elif chance.random() < 0.1:
        node.said *= 2  # the same twice
    if node.said[:1] == (NodeState.ENDED,) and chance.random() < 0.3:
        node.said = ()


def lose_together(world: World) -> None:
    """Leave out all nodes of a group of which one is left out: an engine lists a group or does not."""
    lost = {node.group for node in world.truths if node.group and not node.said}
    for node in world.truths:
        node.said = () if node.group in lost else node.said


@pytest.mark.parametrize("histories", [HISTORIES, pytest.param(MANY_HISTORIES, marks=pytest.mark.slow)])
def test_no_node_is_freed_while_it_lives_or_holds_slots_in_random_histories(histories: int) -> None:
    with capture_logs():  # thousands of lines
        wrong = [each for seed in range(histories) for each in history(seed)]
    assert wrong == []
