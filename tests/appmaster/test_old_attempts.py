"""A launcher refuses orders of an attempt of an app master below the highest one that it has seen."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.launcher.attempts import MOST_APPS, Attempts
from eunomia_appmaster.launcher.errors import OldAttemptError
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.tokens import node_token
from eunomia_appmaster.runtimes import LeaseOverError, LocalRuntime, RefusedError, WatchPosition

_spec = importlib.util.spec_from_file_location("launcher_lab", Path(__file__).parent / "launcher_lab.py")
lab_module = sys.modules.setdefault("launcher_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually = lab_module.eventually

IDLE = "import time\ntime.sleep(600)\n"
Master = Callable[[int], LocalRuntime]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path) as made:
        yield made


@pytest.fixture
def master(lab: Any) -> Iterator[Master]:
    """Makes the runtime of an attempt of ana's app master."""
    made: list[LocalRuntime] = []

    def of(attempt: int, app: str = "ana") -> LocalRuntime:
        token = node_token(lab_module.SECRET, app, lab_module.NODE)
        made.append(LocalRuntime(app, token, lab.state / "launcher" / "launcher.json", attempt=attempt))
        return made[-1]

    yield of
    for runtime in made:
        runtime.close()


def test_orders_of_an_old_attempt_are_refused_once_a_later_one_has_called(lab: Any, master: Master) -> None:
    old, new = master(2), master(3)
    (first,) = old.start(lab.gang(0, script=IDLE))
    old.prepare(lab.gang(1, script=IDLE, job=2))
    (second,) = new.start(lab.gang(2, script=IDLE, job=3))
    why = r"an order for app ana must be of attempt 3 of its app master, the highest that was seen, but got attempt 2"
    with pytest.raises(LeaseOverError, match=why):  # counts against no job
        old.start(lab.gang(1, script=IDLE, job=4))
    with pytest.raises(LeaseOverError, match=why):
        old.start(lab.gang(0, script=IDLE))  # also as a repetition
    orders: list[Callable[[], object]] = [
        lambda: old.go(["ana-2.r1.1"]),
        lambda: old.stop([first.container_id, second.container_id], deadline_seconds=0.0, reason="old"),
        lambda: old.end_stalled([second.container_id], silent_seconds=0.01, reason="old"),
        lambda: old.order_checkpoint([second.container_id]),
        lambda: old.order_stop_at([second.container_id], 7),
    ]
    for order in orders:
        with pytest.raises(RefusedError, match=why):
            order()
    assert {status.stop_reason for status in old.watch(WatchPosition(), wait_seconds=0.0).statuses} == {""}
    new.stop([first.container_id, second.container_id], deadline_seconds=0.0, reason="new")
    assert lab.completed(first.container_id).stop_reason == lab.completed(second.container_id).stop_reason == "new"


def test_a_later_attempt_is_seen_by_its_watch_and_survives_the_launcher(lab: Any, master: Master) -> None:
    old, new = master(1), master(2)
    old.start(lab.gang(0, script=IDLE))
    new.watch(WatchPosition(), wait_seconds=0.0)
    lab.kill()
    lab.start()
    with pytest.raises(LeaseOverError, match="must be of attempt 2"):
        old.start(lab.gang(1, script=IDLE, job=2))
    new.start(lab.gang(1, script=IDLE, job=2))


def test_a_later_attempt_is_seen_by_the_order_that_starts_it(lab: Any, master: Master) -> None:
    old = master(1)
    old.start(lab.gang(0, script=IDLE))
    order = pb.AppMasterOrder(app="ana", attempt=2, command=["python", "-c", IDLE], folder=str(lab.folder))
    lab.arbiter.order(start_app_masters=[order])
    eventually(lambda: (known := lab.arbiter.masters.get("ana")) and known.state == pb.APP_MASTER_RUNNING)
    with pytest.raises(RefusedError, match="must be of attempt 2"):
        old.stop(["ana-1.r1.0"], deadline_seconds=0.0, reason="old")


def test_attempts_of_other_apps_and_unnamed_ones_are_not_refused(lab: Any, master: Any) -> None:
    master(5).watch(WatchPosition(), wait_seconds=0.0)
    master(1, "bo").start(lab.gang(0, script=IDLE, app="bo"))
    lab.runtime().start(lab.gang(1, script=IDLE))  # an app master of an earlier version does not say its attempt


def test_an_order_to_start_an_attempt_below_one_that_called_ends_so_that_the_arbiter_numbers_above(
    lab: Any, master: Master
) -> None:
    master(5).watch(WatchPosition(), wait_seconds=0.0)
    order = pb.AppMasterOrder(app="ana", attempt=4, command=["python", "-c", IDLE], folder=str(lab.folder))
    lab.arbiter.order(start_app_masters=[order])
    known = eventually(lambda: lab.arbiter.masters.get("ana"))
    assert (known.attempt, known.state) == (5, pb.APP_MASTER_COMPLETED)
    assert known.diagnostics == "attempt 4 was ordered after attempt 5"


def test_only_attempts_that_refuse_something_are_kept_and_not_more_than_the_last_ones(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "attempts.json")
    attempts.check("ana", 1)
    assert not (tmp_path / "attempts.json").exists()
    for number in range(MOST_APPS + 1):
        attempts.saw(f"app-{number}", 2)
    again = Attempts(tmp_path / "attempts.json")
    again.check("app-0", 1)
    with pytest.raises(OldAttemptError):
        again.check(f"app-{MOST_APPS}", 1)
    with pytest.raises(OldAttemptError):
        again.check("ana", -1)


def test_a_false_attempt_uses_up_no_numbers(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "attempts.json")
    attempts.check("ana", 2**31 - 1)
    assert attempts["ana"] == 1
    attempts.check("ana", 2)
    assert attempts["ana"] == 2
