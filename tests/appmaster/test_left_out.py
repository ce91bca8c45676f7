"""What an app master reports of nodes that it cannot use, what a launcher refuses, and what the arbiter says of it."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster.test_away_nodes import LaterSystem, miss

from eunomia_appmaster.app.command import Command, Filling
from eunomia_appmaster.launcher.errors import InputError, LacksError
from eunomia_appmaster.launcher.gangs import check_program
from eunomia_appmaster.launcher.node_checks import NodeChecks
from eunomia_appmaster.master.left_out import CHECK_SECONDS, REACH_SECONDS, LeftOutNodes
from eunomia_appmaster.master.outbox import LeftOutReport, Outbox
from eunomia_appmaster.master.wire import request_of
from eunomia_appmaster.node.system import MACHINE
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.runtimes import GangSpec, LocalRuntime, NodeAccess, NodeRuntimes
from eunomia_appmaster.runtimes.nodes import UNREACHABLE_SECONDS
from eunomia_appmaster.service import bounds
from eunomia_appmaster.service.left_out import LeftOut

GANG = GangSpec(job=1, incarnation=1, containers=(), command=("python9", "train.py"), working_folder=Path("/"))


class Node:
    """What a check reads of a launcher's node."""

    name, system = "b08", MACHINE

    def app_folder(self, app: str) -> Path:
        return Path("/apps") / app


@pytest.fixture
def system() -> LaterSystem:
    return LaterSystem()


@pytest.fixture
def runtimes(tmp_path: Path, system: LaterSystem) -> Iterator[NodeRuntimes]:
    own = LocalRuntime("ana", "", tmp_path / "launcher.json", node="own", system=system)
    made = NodeRuntimes("ana", own, "own", system=system)
    with system.reserve_port() as port:
        made.hear([NodeAccess(node=name, address=f"127.0.0.1:{port.number}", token="") for name in ("own", "other")])
        made.keep({"other"})
        yield made
    made.close()


def reported(outbox: Outbox) -> tuple[LeftOutReport, ...] | None:
    return outbox.take().reports().left_out


def test_an_unreachable_node_is_reported_together_with_the_node_that_cannot_reach_it(
    runtimes: NodeRuntimes, system: LaterSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(system)
    left_out = LeftOutNodes(runtimes, outbox)
    left_out.look(100.0)
    assert reported(outbox) == (), "the first list, which the arbiter may have another of"
    miss(runtimes)
    system.seconds = UNREACHABLE_SECONDS
    left_out.look(110.0)
    (one,) = reported(outbox) or ()
    address = runtimes.address("other")
    assert (one.node, one.other, one.by_master, one.since) == ("other", "own", True, 110.0)
    assert (one.why, one.again_seconds) == (f"own (its app master) cannot reach {address}", REACH_SECONDS)
    assert left_out.nodes() == {"other"}, "its connection is kept, so that it is tried again"
    left_out.look(111.0)
    assert reported(outbox) is None
    left_out.report_again()
    left_out.look(112.0)
    assert reported(outbox) == (one,)
    monkeypatch.setattr(runtimes, "is_unreachable", lambda node: False)
    left_out.look(113.0)
    assert reported(outbox) == ()
    assert left_out.nodes() == set()


def test_a_lost_node_is_not_reported_as_unreachable(runtimes: NodeRuntimes, system: LaterSystem) -> None:
    left_out = LeftOutNodes(runtimes, Outbox(system))
    miss(runtimes)
    system.seconds = UNREACHABLE_SECONDS
    runtimes.hear([NodeAccess(node=name, address="", token="", lost=name == "other") for name in ("own", "other")])
    left_out.look(110.0)
    assert left_out.nodes() == set()


def test_a_node_that_lacks_a_program_is_rechecked_and_the_last_node_never_excluded(
    runtimes: NodeRuntimes, system: LaterSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, answers, asked = Outbox(system), ["still no python9", ""], list[float]()
    left_out = LeftOutNodes(runtimes, outbox)
    monkeypatch.setattr(runtimes.of("other"), "lacks", lambda gang: asked.append(0.0) or answers.pop(0))
    assert left_out.lacks("other", GANG, "no python9", 100.0)
    assert not left_out.of_use("other")
    assert not left_out.lacks("own", GANG, "no python9", 100.0), "no other node may have it: the job fails"
    left_out.look(100.0)
    assert reported(outbox) == (
        LeftOutReport(node="other", why="no python9", since=100.0, again_seconds=CHECK_SECONDS),
    )
    left_out.look(100.0 + CHECK_SECONDS)
    (one,) = reported(outbox) or ()
    assert (one.why, one.since) == ("still no python9", 100.0)
    left_out.look(101.0 + CHECK_SECONDS)
    assert len(asked) == 1
    left_out.look(100.0 + 2 * CHECK_SECONDS)
    assert (left_out.of_use("other"), reported(outbox)) == (True, ())


def test_the_list_of_excluded_nodes_is_sent_to_the_arbiter_and_shown_as_text() -> None:
    outbox = Outbox()
    since = 1_796_000_000.0
    outbox.put("left_out", (LeftOutReport(node="b08", why="no python9", since=since, again_seconds=30.0),))
    request = request_of("ana", 1, 0, outbox.take().reports(), now=since + 600.0)
    bounds.check(request)
    (made,) = (LeftOut.read(one, since + 601.0) for one in request.left_out.nodes)
    assert made.since == pytest.approx(since + 1.0)
    words = made.words(since + 700.0)
    assert words.startswith("no slots on b08: no python9 since ")
    assert words.endswith("; tried again every 30 s")
    assert len(made.words(since + 1e6)) == len(words) + len("2026-12-01 ")
    outbox.put("left_out", ())
    assert request_of("ana", 1, 0, outbox.take().reports()).HasField("left_out"), "an empty list says that all is well"


def start(program: str, folder: Path, **env: str) -> pb.StartContainersRequest:
    return pb.StartContainersRequest(app="ana", command=[program, "x.py"], working_folder=str(folder), env=env)


def test_a_launcher_refuses_a_program_that_its_node_lacks(tmp_path: Path) -> None:
    node: Any = Node()
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    check_program(start("python", tmp_path), None, node)
    check_program(start("./tool", tmp_path), None, node)
    check_program(start("tool", tmp_path, PATH=str(tmp_path)), None, node)
    for wanted in (
        start("./tool", tmp_path / "else"),
        start("tool", tmp_path, PATH="/nowhere"),
        start("/no/python", tmp_path),
    ):
        with pytest.raises(LacksError, match=r"the program of a command must exist, but got .* \(b08\)"):
            check_program(wanted, None, node)


def test_a_check_reports_missing_programs_and_whether_another_node_is_reachable(tmp_path: Path) -> None:
    node: Any = Node()

    async def asked(**what: Any) -> pb.CheckNodeResponse:
        return await NodeChecks().answer(pb.CheckNodeRequest(app="ana", **what), node)

    async def run() -> None:
        assert (await asked(command=start(sys.executable, tmp_path))).fault == ""
        assert "must exist" in (await asked(command=start("/no/python", tmp_path))).fault
        assert "a working folder must exist" in (await asked(command=start("python", tmp_path / "else"))).fault
        port = (await asked(listen=True)).port
        assert (await asked(connect=f"127.0.0.1:{port}")).fault == ""
        with MACHINE.reserve_port() as silent:
            assert "127.0.0.1" in (await asked(connect=f"127.0.0.1:{silent.number}")).fault
        with pytest.raises(InputError, match="an address must be HOST:PORT"):
            await asked(connect="127.0.0.1")

    asyncio.run(run())


def test_a_start_order_contains_no_interpreter_path_of_the_app_master(tmp_path: Path) -> None:
    command = Command.parse("python train.py", parameters=())
    filling = Filling(parameters={}, seed=1, max_iterations=None, log_dir=tmp_path, checkpoint_dir=tmp_path)
    assert command.fill(filling) == ["python", "train.py"]
    assert command.fill(filling, virtual_env=str(tmp_path / "gone")) == ["python", "train.py"]
    assert command.fill(filling, virtual_env=sys.prefix) == [f"{sys.prefix}/bin/python", "train.py"]


class Answers:
    """What the runtimes of a pair answer: which way is cut."""

    def __init__(self) -> None:
        self.cut: set[str] = set()
        self.checks = 0

    def of(self, node: str) -> "Answering":
        return Answering(self, node)


class Answering:
    """The runtime of a node whose ways to the others may be cut."""

    def __init__(self, answers: Answers, node: str) -> None:
        self._answers, self._node = answers, node

    def host(self) -> str:
        return self._node

    def listen(self) -> int:
        return 4242

    def connects(self, target: str) -> str:
        self._answers.checks += 1
        return f"no answer from {target}" if self._node in self._answers.cut else ""


def test_two_nodes_that_cannot_reach_each_other_form_no_gang_until_a_check_passes(
    runtimes: NodeRuntimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, answers = Outbox(), Answers()
    monkeypatch.setattr(runtimes, "of", answers.of)
    left_out = LeftOutNodes(runtimes, outbox)
    assert left_out.may_cross(["b", "a", "b"], ["a", "b"], 0.0)
    assert answers.checks == 2, "both ways"
    answers.cut = {"b"}
    assert left_out.may_cross(["a", "b"], ["a", "b"], 1.0), "it passed a moment ago"
    assert not left_out.may_cross(["a", "b"], ["a", "b", "b"], 1.0, again=True)
    assert not left_out.of_use("a"), "the app has fewer slots there"
    assert left_out.of_use("b")
    left_out.look(2.0)
    (one,) = reported(outbox) or ()
    assert (one.node, one.other, one.by_master, one.since) == ("a", "b", False, 1.0)
    assert one.why == "no gang forms over b and a, for b cannot reach a (no answer from a:4242)"
    answers.checks = 0
    assert not left_out.may_cross(["a", "b"], [], 3.0)
    assert answers.checks == 0, "it is known, and checked at its time"
    answers.cut = set()
    left_out.look(1.0 + CHECK_SECONDS)
    assert (left_out.of_use("a"), reported(outbox)) == (True, ())
    assert left_out.may_cross(["a", "b"], [], 2.0 + CHECK_SECONDS)


def test_an_app_never_excludes_the_node_of_its_own_app_master(
    runtimes: NodeRuntimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers()
    answers.cut = {"own"}
    monkeypatch.setattr(runtimes, "of", answers.of)
    left_out = LeftOutNodes(runtimes, Outbox())
    assert not left_out.may_cross(["own", "z"], ["z", "z"], 0.0)
    assert (left_out.of_use("own"), left_out.of_use("z")) == (True, False)
