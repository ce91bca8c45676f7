"""What a launcher takes from workers that change live and their app masters, and when it suspends a gang itself."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from eunomia.errors import InputError
from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.live_leaving import has_not_joined, is_told_to_leave, leaves_live, wait_for_change
from eunomia_appmaster.launcher.live_words import hear, order_of
from eunomia_appmaster.protocol import launcher_pb2 as pb

RESIZED = {"generation": 3, "size": 2, "step": 120, "join_seconds": 0.5, "pause_seconds": 0.07, "at": 1.7e9}


def _change(generation: int, *members: str) -> dict[str, Any]:
    return {"change": {"generation": generation, "members": list(members), "timeout_seconds": 600.0}}


def _container(folder: Path, **live: Any) -> Container:
    status = pb.ContainerStatus(container_id="a.1.1.0", state=pb.RUNNING, hello=True, live=pb.LiveStatus(**live))
    folder.mkdir(exist_ok=True)
    return Container(status, folder)


def test_the_last_words_of_a_worker_stand_in_its_status() -> None:
    live = pb.LiveStatus()
    hear(live, "ready", {"generation": 3})
    hear(live, "resized", RESIZED)
    hear(live, "broken", {"generation": 3, "step": 120, "why": "a peer closed its connection"})
    hear(live, "unfit", {"generation": 3, "why": "x" * 1000})
    assert (live.ready, live.broken, live.resized.step, live.resized.pause_seconds) == (3, 3, 120, 0.07)
    assert len(live.unfit) == 400
    assert not live.resized.at_least
    hear(live, "resized", RESIZED | {"at_least": True})
    assert live.resized.at_least


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("ready", {}),
        ("ready", {"generation": -1}),
        ("ready", {"generation": True}),
        ("leaving", {"generation": 1.5}),
        ("resized", RESIZED | {"pause_seconds": math.nan}),
        ("resized", RESIZED | {"at": -1.0}),
        ("resized", RESIZED | {"size": "two"}),
    ],
)
def test_malformed_words_change_nothing(kind: str, content: dict[str, Any]) -> None:
    live = pb.LiveStatus()
    with pytest.raises((KeyError, TypeError, ValueError)):
        hear(live, kind, content)
    assert live == pb.LiveStatus()


def test_a_change_without_members_or_number_is_refused() -> None:
    for change in (pb.Change(generation=0, members=["a"]), pb.Change(generation=1)):
        with pytest.raises(InputError, match="a change must have a generation from 1"):
            order_of(pb.OrderContainersRequest(change=change))


def test_a_container_keeps_the_newest_change(tmp_path: Path) -> None:
    container = _container(tmp_path / "one")
    for order in (_change(2, "a.1.1.0"), _change(1, "a.1.1.1")):
        assert container.keeps(order)
    assert container.standing_orders() == [_change(2, "a.1.1.0")]
    assert container.status.live.ordered == 2
    container.save()
    loaded = Container.load(container.folder)
    assert loaded is not None
    assert loaded.standing_orders() == [_change(2, "a.1.1.0")]


def test_a_gang_is_ordered_to_suspend_unless_its_app_master_tells_the_worker_to_leave(tmp_path: Path) -> None:
    suspended: list[str] = []
    for name, members in (("none", None), ("stays", ["a.1.1.0"]), ("leaves", ["a.1.1.1"])):
        container = _container(tmp_path / name)
        if members is not None:
            container.keeps(_change(1, *members))
        assert leaves_live(container)
        asyncio.run(wait_for_change(container, 0.02, lambda name=name: suspended.append(name)))  # type: ignore[misc]
        assert is_told_to_leave(container) == (name == "leaves")
    assert suspended == ["none", "stays"]


def test_a_newcomer_has_joined_once_it_was_ordered_to(tmp_path: Path) -> None:
    container = _container(tmp_path / "new", began=1)
    assert has_not_joined(container)
    container.keeps(_change(1, "a.1.1.0"))
    assert not has_not_joined(container)
    assert not has_not_joined(_container(tmp_path / "old"))
