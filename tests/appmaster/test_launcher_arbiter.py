"""The launcher as a client of the arbiter: registration, heartbeats, revocations, fences, app masters."""

import asyncio
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.launcher import app_masters
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.kept_files import read_token, sealed_token
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.tokens import node_token
from eunomia_appmaster.runtimes import Exit, LeaseOverError, LocalRuntime, RuntimeAwayError

_spec = importlib.util.spec_from_file_location("launcher_lab", Path(__file__).parent / "launcher_lab.py")
lab_module = sys.modules.setdefault("launcher_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, alive, SECRET, NODE = lab_module.eventually, lab_module.alive, lab_module.SECRET, lab_module.NODE

OBEYS = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(75))\nprint('up', flush=True)\ntime.sleep(600)"
DEAF = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)\n"
MASTER = """
import os, sys, time
app = os.environ["EUNOMIA_APP_DIR"]
with open("attempts", "a") as file:
    file.write(f"{os.environ['EUNOMIA_ATTEMPT']} {os.environ['EUNOMIA_PART']} {os.getpid()}\\n")
print("hello from", os.environ["EUNOMIA_APP"], flush=True)
while not (os.path.exists("end") and open("end").read()):  # written in two steps: made, then filled
    time.sleep(0.02)
sys.exit(int(open("end").read()))
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path, "--restart-pause-seconds", "0.05") as lab:
        yield lab


def master_order(lab: Any, **more: Any) -> pb.AppMasterOrder:
    (lab.folder / "master.py").write_text(MASTER)
    command = ["python", "master.py"]
    more = {"app": "ana", "attempt": 1, "command": command, "folder": str(lab.folder), "token": "anas own", **more}
    return pb.AppMasterOrder(**more)


def attempts(lab: Any) -> list[list[int]]:
    """Attempt, part and pid of each start."""
    path = lab.folder / "attempts"
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_node_reports_its_slots_cpus_and_memory(lab: Any) -> None:
    (node,) = lab.arbiter.registrations
    assert (node.node, len(node.slots), node.slots[2].index, node.slots[2].gpu_type) == (NODE, 3, 2, "cpu")
    assert node.cpus == pytest.approx(sum(slot.cpus for slot in node.slots))
    assert node.memory_gib > 0
    record = json.loads((lab.state / "launcher" / "launcher.json").read_text())
    assert node.container_manager_address == record["address"]
    assert [state.busy for state in node.slot_states] == [False] * 3


def test_changes_of_state_are_reported_at_once(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.arbiter.heartbeat_seconds = 600  # heard at the next registration
        lab.kill()
        lab.start()
        lab.runtime().start(lab.gang(0, script="print('up', flush=True)"))
        lab.completed("ana-1.r1.0")
        eventually(lambda: lab.arbiter.containers["ana-1.r1.0"].state == pb.COMPLETED)
        assert not lab.arbiter.slots[0].busy
        assert lab.arbiter.slots[0].highest_epoch == 1
        lab.arbiter.stop()


def test_a_revoked_lease_ends_its_gang_and_cannot_be_started_again(lab: Any) -> None:
    lab.runtime().start(lab.gang(0, script=OBEYS, job=1, epoch=4))
    lab.runtime().start(lab.gang(1, script=DEAF, job=2, epoch=5))
    lab.runtime().start(lab.gang(2, script=OBEYS, job=3, epoch=6))
    eventually(lambda: all(lab.stdout(job=job) for job in (1, 2, 3)))
    lab.arbiter.order(
        revocations=[
            pb.Revocation(slot=0, epoch=4, deadline_seconds=20),
            pb.Revocation(slot=1, epoch=5, deadline_seconds=0.2),
            pb.Revocation(slot=2, epoch=5, deadline_seconds=0),  # an older lease than the one that runs
        ]
    )
    assert lab.completed("ana-1.r1.0").exit == Exit(code=75)
    deaf = lab.completed("ana-2.r1.1")
    assert (deaf.exit, deaf.killed) == (Exit(signal=9), True)
    eventually(lambda: not lab.arbiter.slots[0].busy and not lab.arbiter.slots[1].busy)
    assert lab.arbiter.slots[2].busy
    with pytest.raises(LeaseOverError, match="slot 0 must be above 4, the last that was revoked, but got 4"):
        lab.runtime().start(lab.gang(0, script="", job=4, epoch=4))
    assert alive(lab.status("ana-3.r1.2").pid)


def test_a_revocation_stops_the_whole_gang_but_kills_only_the_revoked_slot(lab: Any) -> None:
    lab.runtime().start(lab.gang(0, 1, script=DEAF, epoch=3))
    eventually(lambda: lab.stdout().count("up") == 2)
    lab.arbiter.order(revocations=[pb.Revocation(slot=1, epoch=3, deadline_seconds=0.2)])
    assert lab.completed("ana-1.r1.1").killed
    mate = lab.status("ana-1.r1.0")
    assert mate.stop_reason == "the lease of slot 1 ended"
    assert alive(mate.pid)


def test_a_revocation_may_leave_the_order_to_stop_to_the_app_master(lab: Any) -> None:
    lab.runtime().start(lab.gang(0, script=OBEYS, epoch=3))
    eventually(lab.stdout)
    left = pb.Revocation(slot=0, epoch=3, deadline_seconds=0.3, leave_warning_to_app_master=True)
    lab.arbiter.order(revocations=[left])
    status = lab.completed("ana-1.r1.0")
    assert (status.exit, status.killed, status.stop_reason) == (Exit(signal=9), True, "")


def test_a_fence_kills_the_processes_on_its_slot_at_once(lab: Any) -> None:
    lab.runtime().start(lab.gang(0, script=OBEYS, epoch=3))
    eventually(lab.stdout)
    lab.arbiter.order(fences=[pb.Fence(slot=0, epoch=9)])
    assert lab.completed("ana-1.r1.0").exit == Exit(signal=9)
    eventually(lambda: (state := lab.arbiter.slots[0]).closed_epoch == 9 and not state.busy)
    with pytest.raises(LeaseOverError):
        lab.runtime().start(lab.gang(0, script="", job=2, epoch=9))


def test_containers_continue_while_the_arbiter_is_away(lab: Any) -> None:
    lab.runtime().start(lab.gang(0, script=OBEYS, job=1))
    lab.runtime().start(lab.gang(1, script=DEAF, job=2))
    eventually(lambda: lab.stdout(job=1) and lab.stdout(job=2))
    lab.runtime().stop(["ana-2.r1.1"], deadline_seconds=0.3, reason="over")
    port = lab.arbiter.port
    lab.arbiter.stop()
    assert lab.completed("ana-2.r1.1").killed  # the deadline is kept without an arbiter
    lab.arbiter = lab_module.Arbiter()
    lab.arbiter.port = port
    lab.arbiter.start()
    (again,) = eventually(lambda: lab.arbiter.registrations)
    states = {status.container_id: status.state for status in again.containers}
    assert states == {"ana-1.r1.0": pb.RUNNING, "ana-2.r1.1": pb.COMPLETED}
    lab.arbiter.order(revocations=[pb.Revocation(slot=0, epoch=1, deadline_seconds=20)])
    assert lab.completed("ana-1.r1.0").exit == Exit(code=75)


def test_a_launcher_retries_until_its_token_is_accepted(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.kill()
        (tmp_path / "token").write_text(sealed_token("wrong"))
        before = len(lab.arbiter.registrations)
        lab.arbiter.refused = 0
        import threading

        starter = threading.Thread(target=lab.start)
        starter.start()
        eventually(lambda: lab.arbiter.refused > 1)
        assert len(lab.arbiter.registrations) == before
        (tmp_path / "token").write_text(sealed_token("right"))
        starter.join()


def test_a_launcher_without_a_registration_can_check_no_container_token(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.kill()
        for name in ("secret", "secret.old"):
            (lab.state / "launcher" / name).unlink(missing_ok=True)
        (tmp_path / "token").write_text(sealed_token("wrong"))
        import threading

        starter = threading.Thread(target=lab.start)
        starter.start()
        eventually(lambda: lab.arbiter.refused > 0)
        hasty = LocalRuntime("ana", "", lab.state / "launcher" / "launcher.json", patience_seconds=0)
        with pytest.raises(RuntimeAwayError, match="must have registered"):
            hasty.start(lab.gang(0, script=""))
        hasty.close()
        (tmp_path / "token").write_text(sealed_token("right"))
        assert lab.runtime().start(lab.gang(0, script=""))  # repeats the call until the launcher can check
        starter.join()


def test_an_app_master_is_started_once_and_its_end_is_reported(lab: Any) -> None:
    lab.arbiter.order(start_app_masters=[master_order(lab)])
    eventually(lambda: attempts(lab))
    eventually(lambda: lab.arbiter.masters["ana"].state == pb.APP_MASTER_RUNNING)
    lab.arbiter.order(start_app_masters=[master_order(lab)])  # the arbiter repeats itself
    (lab.folder / "end").write_text("0")
    ended = eventually(lambda: (master := lab.arbiter.masters["ana"]).state == pb.APP_MASTER_COMPLETED and master)
    assert (ended.attempt, ended.exit.code) == (1, 0)
    assert len(attempts(lab)) == 1
    assert (lab.state / "apps" / "ana" / f"appmaster.a1.{NODE}.out.log").read_text() == "hello from ana\n"
    folder = lab.state / "apps" / "ana" / "appmaster"
    token = folder / f"token.{NODE}"
    assert read_token(token) == "anas own"
    assert read_token(folder / f"node_token.{NODE}") == node_token(SECRET, "ana", NODE)
    record = lab.state / "launcher" / "app_masters" / "ana.json"
    assert b"anas own" in record.read_bytes()  # each attempt gets it from there
    assert {path.stat().st_mode & 0o077 for path in (token, record, record.with_name("ana.json.old"))} == {0}


def test_an_app_master_finds_its_launcher_in_the_environment(lab: Any) -> None:
    script = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"
    order = master_order(lab, command=["python", "-c", script], env={"COLOUR": "red"})
    lab.arbiter.order(start_app_masters=[order])
    output = lab.state / "apps" / "ana" / f"appmaster.a1.{NODE}.out.log"
    env = json.loads(eventually(lambda: output.exists() and output.read_text()))
    assert (env["COLOUR"], env["EUNOMIA_NODE"]) == ("red", NODE)
    assert env["EUNOMIA_ADDRESS"] == f"127.0.0.1:{lab.arbiter.port}"
    token = Path(env["EUNOMIA_NODE_TOKEN_FILE"]).read_text()
    runtime = LocalRuntime("ana", token, Path(env["EUNOMIA_LAUNCHER_FILE"]))
    runtime.start(lab.gang(0, script=""))
    runtime.close()
    assert lab.completed("ana-1.r1.0").finished


def test_an_app_master_that_fails_too_often_is_suspended_until_the_next_order(lab: Any) -> None:
    (lab.folder / "end").write_text("9")
    lab.arbiter.order(start_app_masters=[master_order(lab)])
    waits = eventually(
        lambda: (master := lab.arbiter.masters.get("ana")) and master.state == pb.APP_MASTER_SUSPENDED and master
    )
    assert (waits.attempt, waits.part, waits.exit.code) == (1, 5, 9)
    assert waits.diagnostics == "ended by itself 5 times in 10 min, last with exit code 9"
    assert 30.0 < waits.again_at - time.time() <= 60.0
    assert [start[:2] for start in attempts(lab)] == [[1, 1], [1, 2], [1, 3], [1, 4], [1, 5]]
    lab.kill()
    lab.start()
    lab.arbiter.order(start_app_masters=[master_order(lab, attempt=6, asked=True, max_own_ends=0)])
    eventually(lambda: (now := lab.arbiter.masters["ana"]).state == pb.APP_MASTER_SUSPENDED and now.attempt == 6)
    assert lab.arbiter.masters["ana"].diagnostics == "ended by itself once in 10 min, last with exit code 9"
    assert [start[:2] for start in attempts(lab)][5:] == [[6, 1]]


def test_an_app_master_that_exits_with_0_early_counts_as_failed(lab: Any) -> None:
    (lab.folder / "end").write_text("0")

    def ended(attempt: int, state: "pb.AppMasterState.ValueType") -> bool:
        master = lab.arbiter.masters.get("ana")
        return master is not None and (master.attempt, master.state) == (attempt, state)

    for attempt in (1, 2):
        lab.arbiter.order(start_app_masters=[master_order(lab, attempt=attempt, max_own_ends=1)])
        eventually(lambda attempt=attempt: ended(attempt, pb.APP_MASTER_COMPLETED))  # type: ignore[misc]
    lab.arbiter.order(start_app_masters=[master_order(lab, attempt=3, max_own_ends=1)])
    eventually(lambda: ended(2, pb.APP_MASTER_SUSPENDED))
    why = "ended by itself 2 times in 10 min, last with exit code 0: its app is not over"
    assert lab.arbiter.masters["ana"].diagnostics == why
    assert [attempt for attempt, *_ in attempts(lab)] == [1, 2]


def test_a_launcher_that_is_stopped_reports_that_it_drains(lab: Any) -> None:
    lab.arbiter.order(start_app_masters=[master_order(lab)])
    ((*_, pid),) = eventually(lambda: attempts(lab))
    eventually(lambda: lab.arbiter.masters["ana"].state == pb.APP_MASTER_RUNNING)
    lab.runtime().start(lab.gang(0, script=DEAF))
    eventually(lab.stdout)
    lab.launcher.send_signal(signal.SIGTERM)
    ended = eventually(lambda: (master := lab.arbiter.masters["ana"]).state == pb.APP_MASTER_COMPLETED and master)
    assert (ended.drained, lab.arbiter.draining) == (True, True)
    lab.arbiter.order(start_app_masters=[master_order(lab, attempt=2)])  # it starts nothing more
    lab.launcher.wait(60.0)
    assert (alive(pid), len(attempts(lab))) == (False, 1)
    lab.start()
    eventually(lambda: lab.arbiter.masters["ana"].attempt == 2)
    assert not lab.arbiter.draining


def test_a_killed_app_master_is_restarted_and_a_stopped_one_is_not(lab: Any) -> None:
    lab.arbiter.order(start_app_masters=[master_order(lab)])
    ((*_, first),) = eventually(lambda: attempts(lab))
    os.kill(first, signal.SIGKILL)
    second = eventually(lambda: len(attempts(lab)) == 2 and attempts(lab)[1])
    lab.arbiter.order(stop_app_masters=[pb.AppMasterStop(app="ana", deadline_seconds=20)])
    ended = eventually(lambda: (master := lab.arbiter.masters["ana"]).state == pb.APP_MASTER_COMPLETED and master)
    assert (ended.attempt, ended.part, ended.exit.signal) == (1, 2, signal.SIGTERM)
    assert not alive(second[2])
    time.sleep(0.3)  # longer than any pause before a restart
    assert len(attempts(lab)) == 2


def test_an_app_master_that_cannot_start_on_a_full_disk_starts_later(lab: Any) -> None:
    way = lab.state / "apps" / "ana"
    way.parent.mkdir()
    way.write_text("in the way")
    lab.arbiter.order(start_app_masters=[master_order(lab)])
    eventually(lambda: "app_master.refused" in lab.output())
    way.unlink()
    (lab.folder / "end").write_text("0")
    eventually(lambda: (master := lab.arbiter.masters.get("ana")) and master.state == pb.APP_MASTER_COMPLETED)
    assert [attempt for attempt, *_ in attempts(lab)] == [1]


def test_only_the_last_ended_app_masters_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_masters, "MOST_ENDED", 2)
    node = Node(tmp_path, NODE, local_machine.detect(1, use_gpus=False))
    node.secret = SECRET
    command = [sys.executable, "-c", ""]

    async def run() -> list[str]:
        masters = app_masters.AppMasters(
            node, Containers(node, ZygoteClient(node.folder, enabled=False)), "127.0.0.1:1"
        )
        masters.registered.set()
        for app in ("ana", "bob", "cid"):
            masters.start(pb.AppMasterOrder(app=app, attempt=1, command=command, folder=str(tmp_path)))
            while any(master.status.state != pb.APP_MASTER_COMPLETED for master in masters):
                await asyncio.sleep(0.01)
        return [master.order.app for master in masters]

    assert asyncio.run(asyncio.wait_for(run(), 60.0)) == ["bob", "cid"]
    left = sorted(path.name for path in (node.folder / "app_masters").iterdir())
    assert left == ["bob.json", "bob.json.old", "cid.json", "cid.json.old"]


def test_an_ended_app_master_is_forgotten_after_a_time_once_the_arbiter_knows_of_it(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, NODE, local_machine.detect(1, use_gpus=False))
    node.secret = SECRET
    command = [sys.executable, "-c", ""]

    async def run() -> list[str]:
        containers = Containers(node, ZygoteClient(node.folder, enabled=False))
        masters = app_masters.AppMasters(node, containers, "127.0.0.1:1", keep_seconds=60.0)
        masters.registered.set()
        for app in ("ana", "bob", "cid"):
            masters.start(pb.AppMasterOrder(app=app, attempt=1, command=command, folder=str(tmp_path)))
        while any(master.status.state != pb.APP_MASTER_COMPLETED for master in masters):
            await asyncio.sleep(0.01)
        for master in masters:
            master.status.ended_at -= 3600.0 if master.order.app != "cid" else 0.0
        masters.forget(lambda ended: ended.app != "bob")
        return [master.order.app for master in masters]

    assert asyncio.run(asyncio.wait_for(run(), 60.0)) == ["bob", "cid"]
    assert not (node.folder / "app_masters" / "ana.json").exists()


def masters_of(node: Node, *, pause_seconds: float = 0.01) -> app_masters.AppMasters:
    """App masters of a launcher that starts now, with what an earlier one left."""
    containers = Containers(node, ZygoteClient(node.folder, enabled=False))
    masters = app_masters.AppMasters(node, containers, "127.0.0.1:1", pause_seconds=pause_seconds)
    containers.adopt()
    masters.adopt()
    masters.registered.set()
    return masters


async def comes_to(masters: app_masters.AppMasters, state: "pb.AppMasterState.ValueType") -> pb.AppMasterStatus:
    async with asyncio.timeout(60.0):
        while any(master.status.state != state for master in masters):
            await asyncio.sleep(0.01)
    (master,) = masters
    return master.status


def test_an_app_master_whose_run_folder_exists_is_started_under_the_next_number(tmp_path: Path) -> None:
    node = Node(tmp_path, NODE, local_machine.detect(1, use_gpus=False))
    node.secret = SECRET
    (node.app_folder("ana") / "appmaster" / "1").mkdir(parents=True)  # left by a launcher that was killed just then

    async def run() -> pb.AppMasterStatus:
        masters = masters_of(node)
        command = [sys.executable, "-c", ""]
        masters.start(pb.AppMasterOrder(app="ana", attempt=1, command=command, folder=str(tmp_path)))
        return await comes_to(masters, pb.APP_MASTER_COMPLETED)

    ended = asyncio.run(run())
    assert (ended.attempt, ended.part, ended.exit.code, ended.diagnostics) == (1, 2, 0, "")


def test_an_app_master_adopted_during_a_backoff_keeps_its_count_of_failures(tmp_path: Path) -> None:
    node = Node(tmp_path, NODE, local_machine.detect(1, use_gpus=False))
    node.secret = SECRET
    command = [sys.executable, "-c", "open('runs', 'a').write('x'); raise SystemExit(9)"]

    async def begin() -> None:
        masters = masters_of(node, pause_seconds=1000.0)
        masters.start(pb.AppMasterOrder(app="ana", attempt=1, command=command, folder=str(tmp_path)))
        await comes_to(masters, pb.APP_MASTER_BACKING_OFF)

    async def go_on() -> pb.AppMasterStatus:
        return await comes_to(masters_of(node), pb.APP_MASTER_SUSPENDED)

    asyncio.run(begin())
    assert (asyncio.run(go_on()).part, (tmp_path / "runs").read_text()) == (5, "xxxxx")
    assert asyncio.run(go_on()).part == 5  # adopted while it is suspended


def test_a_new_launcher_adopts_running_app_masters(lab: Any) -> None:
    lab.arbiter.order(start_app_masters=[master_order(lab)])
    ((*_, pid),) = eventually(lambda: attempts(lab))
    eventually(lambda: lab.arbiter.masters["ana"].state == pb.APP_MASTER_RUNNING)
    lab.kill()
    lab.start()
    (master,) = lab.arbiter.registrations[-1].app_masters
    assert (master.state, master.pid) == (pb.APP_MASTER_RUNNING, pid)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(attempts(lab)) == 2)  # restarts go on under the new launcher
    (lab.folder / "end").write_text("0")
    eventually(lambda: lab.arbiter.masters["ana"].state == pb.APP_MASTER_COMPLETED)
    assert (lab.arbiter.masters["ana"].attempt, lab.arbiter.masters["ana"].part) == (1, 2)


def test_a_launcher_refuses_an_attempt_lower_than_one_that_it_has_seen(tmp_path: Path) -> None:
    node = Node(tmp_path, NODE, local_machine.detect(1, use_gpus=False))
    node.secret = SECRET
    (node.app_folder("ana") / "appmaster" / "7.2").mkdir(parents=True)  # its record is lost
    command = [sys.executable, "-c", "open('runs', 'a').write('x')"]

    async def run(attempt: int) -> pb.AppMasterStatus:
        masters = masters_of(node)
        masters.start(pb.AppMasterOrder(app="ana", attempt=attempt, command=command, folder=str(tmp_path)))
        return await comes_to(masters, pb.APP_MASTER_COMPLETED)

    refused = asyncio.run(run(3))
    assert (refused.attempt, refused.part, refused.diagnostics) == (7, 2, "attempt 3 was ordered after attempt 7")
    assert not (tmp_path / "runs").exists()
    started = asyncio.run(run(8))
    assert (started.attempt, started.part, (tmp_path / "runs").read_text()) == (8, 1, "x")
    asyncio.run(run(7))
    assert (tmp_path / "runs").read_text() == "x"
