"""Nodes that an app master does not reach: what counts as lost, when slots are given back, and what users read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.master.away_nodes import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, AwayNodes
from eunomia_appmaster.master.endings import Ending, GangOutcome
from eunomia_appmaster.master.gangs import in_order_of_ranks
from eunomia_appmaster.master.jobs import Gang
from eunomia_appmaster.master.notices import Notices
from eunomia_appmaster.master.slots import Slot
from eunomia_appmaster.master.unformed import UnformedGangs
from eunomia_appmaster.node.system import MachineSystem
from eunomia_appmaster.runtimes import LocalRuntime, NodeAccess, NodeRuntimes, RuntimeAwayError, WatchPosition
from eunomia_appmaster.runtimes.nodes import UNREACHABLE_SECONDS


class LaterSystem(MachineSystem):
    """This machine, on a clock that is some seconds ahead."""

    seconds = 0.0

    def uptime(self) -> float:
        """See ``MachineSystem``."""
        return super().uptime() + self.seconds


@pytest.fixture
def system() -> LaterSystem:
    return LaterSystem()


@pytest.fixture
def runtimes(tmp_path: Path, system: LaterSystem) -> Iterator[NodeRuntimes]:
    """Of node ``own``, and of ``other``, whose launcher's port is open to none."""
    own = LocalRuntime("ana", "", tmp_path / "launcher.json", node="own", system=system)
    made = NodeRuntimes("ana", own, "own", system=system)
    with system.reserve_port() as port:
        made.hear([NodeAccess(node="other", address=f"127.0.0.1:{port.number}", token="")])
        made.keep({"other"})
        yield made
    made.close()


def miss(runtimes: NodeRuntimes) -> None:
    with pytest.raises(RuntimeAwayError):
        runtimes.of("other").watch(WatchPosition(), wait_seconds=0.0)


def test_a_node_without_an_answer_for_a_while_counts_as_unreachable(
    runtimes: NodeRuntimes, system: LaterSystem
) -> None:
    assert not runtimes.is_unreachable("other")
    assert not runtimes.has_settled({"other"})
    miss(runtimes)
    assert not runtimes.is_unreachable("other")
    system.seconds = UNREACHABLE_SECONDS
    assert runtimes.is_unreachable("other")
    assert not runtimes.is_unreachable("own")
    assert runtimes.has_settled({"other"})
    assert "UNAVAILABLE" in runtimes.why_away("other")


def test_a_node_without_a_known_address_does_not_count_as_unreachable(tmp_path: Path, system: LaterSystem) -> None:
    own = LocalRuntime("ana", "", tmp_path / "launcher.json", node="own", system=system)
    made = NodeRuntimes("ana", own, "own", system=system)
    with pytest.raises(RuntimeAwayError, match=r"must say where .* \(other\)"):
        made.of("other").watch(WatchPosition(), wait_seconds=0.0)
    system.seconds = 2.0 * UNREACHABLE_SECONDS
    assert not made.is_unreachable("other")
    made.hear([NodeAccess(node="own", address="127.0.0.1:1", token="")])
    assert made.is_lost("other")  # it is no part of the cluster
    made.close()


def test_an_empty_address_from_a_restarted_arbiter_does_not_replace_the_known_one(runtimes: NodeRuntimes) -> None:
    before = runtimes.of("other").host(), runtimes._access_to("other")
    runtimes.hear([NodeAccess(node="other", address="", token="new")])
    assert (runtimes.of("other").host(), runtimes._access_to("other")) == (before[0], (before[1][0], "new"))


def test_slots_of_an_unreachable_node_are_returned_after_growing_pauses(
    runtimes: NodeRuntimes, system: LaterSystem
) -> None:
    away = AwayNodes(runtimes)
    miss(runtimes)
    assert away.due({"own", "other"}, 0.0) == set()
    system.seconds = UNREACHABLE_SECONDS
    pauses, began = [], 100.0
    for _ in range(9):
        assert away.due({"own", "other"}, began) == set()
        at = next(at for at in range(1, 1000) if away.due({"own", "other"}, began + at))
        pauses.append(at)
        began += at + 1.0
    assert pauses[:4] == [FIRST_PAUSE_SECONDS * 2**times for times in range(4)]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    away.answered("other")
    assert away.due({"other"}, 0.0) == set()
    assert away.due({"other"}, FIRST_PAUSE_SECONDS) == {"other"}


def test_ranks_are_ordered_by_node_and_the_node_with_most_slots_comes_first() -> None:
    slots = [slot(gpu, node) for gpu, node in ((0, "a"), (1, "b"), (2, "c"), (3, "b"), (4, "c"))]
    assert [one.gpu for one in in_order_of_ranks(slots)] == [1, 3, 2, 4, 0]
    assert [one.gpu for one in in_order_of_ranks(slots[:1])] == [0]


def slot(gpu: int, node: str) -> Slot:
    return Slot(gpu=gpu, node=node, slot=0, gpu_type="cpu", lease=1, epoch=1, token="", job=None)


def test_the_record_of_a_gang_names_its_nodes_unless_it_is_an_older_one() -> None:
    made = Gang(
        incarnation=1, gpus=(4, 0), containers=("x.0", "x.1"), nodes=("b", "a"), stop_at=None, began_at=0.0, from_step=0
    )
    values: dict[str, Any] = made.to_json()
    assert Gang.from_json(values) == made
    assert made.by_node() == {"b": ("x.0",), "a": ("x.1",)}
    assert made.crosses
    del values["nodes"]
    assert Gang.from_json(values).nodes == ()


def test_a_gang_over_several_nodes_that_fails_without_a_step_is_excused_once() -> None:
    notices = Notices()
    unformed = UnformedGangs(notices)
    failed = Ending(outcome=GangOutcome.FAILED, why="worker 1 exited with code 1")
    assert unformed.excuses("ana/1", over("a", "b"), failed)
    assert not unformed.excuses("ana/1", over("a", "b"), failed)
    assert unformed.excuses("ana/1", over("a", "c"), failed)
    assert unformed.excuses("ana/2", over("b", "a"), failed)
    assert not unformed.excuses("ana/3", over("a", "a"), failed)
    assert not unformed.excuses("ana/3", over("a", "b"), Ending(outcome=GangOutcome.LOST))
    began = over("a", "b")
    began.running = True
    assert not unformed.excuses("ana/3", began, failed)
    assert notices.kept[0].startswith("ana/1: its gang over a and b made no step (worker 1 exited with code 1)")


def over(*nodes: str) -> Gang:
    ids = tuple(f"x.{rank}" for rank in range(len(nodes)))
    gpus = tuple(range(len(nodes)))
    return Gang(incarnation=1, gpus=gpus, containers=ids, nodes=nodes, stop_at=None, began_at=0.0, from_step=0)
