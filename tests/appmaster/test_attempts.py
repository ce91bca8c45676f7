"""Attempts of app masters are numbered by the arbiter alone, in the journal before the order goes out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import service_lab
from tests.appmaster.service_lab import Master, eventually
from tests.appmaster.test_service import code_of
from tests.appmaster.test_upkeep import Two

from eunomia.units import Seconds
from eunomia_appmaster.protocol import arbiter_pb2
from eunomia_appmaster.protocol import launcher_pb2 as pb


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with service_lab.lab(tmp_path) as made:
        yield made.ready()


def noted(lab: Any) -> int:
    """The number in the journal."""
    made: int = lab.arbiter.call(lambda: lab.arbiter.service.journal.notes("app")["ana"]["attempts"])
    return made


def test_no_order_to_start_an_app_master_is_sent_before_its_number_is_journaled(lab: Any) -> None:
    lab.submit("ana")
    eventually(lambda: ("ana", 1) in lab.launcher.started, "the first attempt")
    assert noted(lab) == 1
    service = lab.arbiter.service

    def orders() -> list[tuple[str, int]]:
        (node,) = service.nodes
        return [(order.app, order.attempt) for order in service.orders(node).start_app_masters]

    def ended() -> tuple[list[tuple[str, int]], int]:
        (node,) = service.nodes
        node.app_masters["ana"].state = pb.APP_MASTER_COMPLETED
        service.refresh()
        return orders(), service.apps.get("ana").attempts

    lab.quiet()
    assert lab.arbiter.call(ended) == ([], 2)
    eventually(lambda: noted(lab) == 2, "the journal has it")
    assert lab.arbiter.call(orders) == [("ana", 2)]


def test_restarts_by_the_launcher_count_within_the_attempt(lab: Any) -> None:
    lab.submit("ana")
    eventually(lambda: ("ana", 1) in lab.launcher.started, "the first attempt")
    lab.launcher.master("ana", 1, pb.APP_MASTER_RUNNING, part=3)
    master = Master(lab, "ana")
    master.part = 3
    master.register()
    eventually(lambda: (lab.app("ana").attempt, lab.app("ana").part) == (1, 3), "its start")
    former = Master(lab, "ana")
    former.part = 2
    assert "a later attempt of this app's master is there" in str(code_of(former.register)[1])
    assert set(lab.launcher.started) == {("ana", 1)}
    assert noted(lab) == 1


def test_an_app_master_that_moves_gets_a_new_attempt_number_from_the_arbiter(tmp_path: Path) -> None:
    with service_lab.lab(tmp_path, slots=2, node_lease=Seconds(2.0)) as made:
        two = Two(made)
        made.submit("ana")
        first = eventually(
            lambda: next((one for one in (made.launcher, two.annex) if ("ana", 1) in one.started), None), "it starts"
        )
        first.master("ana", 1, pb.APP_MASTER_RUNNING, part=9)
        node = made.arbiter.service.nodes.get(first.node)
        eventually(lambda: "ana" in node.app_masters and node.app_masters["ana"].part == 9, "its restarts are known")
        two.call("DrainNode", arbiter_pb2.DrainNodeRequest(node=first.node))
        other = two.annex if first is made.launcher else made.launcher
        eventually(lambda: ("ana", 2) in other.started, "it moves")
        assert made.arbiter.call(lambda: made.arbiter.service.journal.notes("app")["ana"]["attempts"]) == 2
        two.quiet()
