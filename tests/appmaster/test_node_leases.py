"""Leases of nodes: what a launcher, the parents of workers, the arbiter and an app master make of them."""

import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import launcher_lab, service_lab
from tests.appmaster.launcher_lab import alive, eventually
from tests.appmaster.service_lab import Beating
from tests.appmaster.test_upkeep import Two

from eunomia.journal.journal import Journal
from eunomia.units import Seconds
from eunomia_appmaster.launcher import shepherd
from eunomia_appmaster.launcher.errors import LeaseEndedError
from eunomia_appmaster.launcher.node_lease import NodeLease
from eunomia_appmaster.launcher.shepherd import read_lease
from eunomia_appmaster.master.link import ArbiterLink
from eunomia_appmaster.master.outbox import Outbox
from eunomia_appmaster.node.system import MACHINE, MachineSystem
from eunomia_appmaster.protocol import arbiter_pb2 as arbiter_pb
from eunomia_appmaster.runtimes.runtime import RuntimeAwayError
from eunomia_appmaster.service.longer_leases import lengthen_leases
from eunomia_appmaster.service.node_leases import META, HeldLease, NodeLeases, lease_words

OBEYS = "import os, signal, time\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(75))\nprint('on', flush=True)\n"
OBEYS += "while True: time.sleep(0.02)\n"
DEAF = OBEYS.replace("lambda *_: os._exit(75)", "signal.SIG_IGN")


class Clock(MachineSystem):
    """This machine, on a clock that a test sets."""

    now = 1000.0

    def uptime(self) -> float:
        """See ``MachineSystem``."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


# --- the launcher's own view ---------------------------------------------------------------------------------------


def test_a_lease_counts_from_the_sending_of_the_call_and_starts_nothing_during_the_grace(
    tmp_path: Path, clock: Clock
) -> None:
    lease = NodeLease(tmp_path / "lease", system=clock)
    with pytest.raises(LeaseEndedError, match="none yet"):
        lease.check()
    clock.now += 4.0
    lease.renew(1000.0, 90.0, 18.0)  # the answer came after 4 s
    assert (lease.left_seconds, lease.leaves_in_seconds, lease.is_over) == (86.0, 68.0, False)
    clock.now = 1071.9
    lease.check()
    assert lease.is_old
    clock.now = 1072.0
    with pytest.raises(LeaseEndedError):
        lease.check()
    assert lease.left_seconds == 18.0
    lease.renew(1071.0, 90.0, 18.0)
    lease.check()
    assert not lease.is_old


def test_a_lease_without_an_end_never_expires(tmp_path: Path, clock: Clock) -> None:
    lease = NodeLease(tmp_path / "lease", system=clock)
    lease.renew(clock.now, 0.0, 0.0)
    clock.now += 1e9
    lease.check()
    assert lease.is_endless
    assert not lease.is_old
    kept = read_lease(str(lease.path))
    assert kept is not None and kept["ends_at"] is None


def test_with_the_option_to_go_on_alone_workers_continue_but_none_starts(tmp_path: Path, clock: Clock) -> None:
    lease = NodeLease(tmp_path / "lease", system=clock)
    lease.goes_on = True
    lease.renew(clock.now, 90.0, 18.0)
    clock.now += 89.0
    lease.check()
    clock.now += 2.0
    assert lease.leaves_in_seconds == math.inf
    assert lease.is_over
    kept = read_lease(str(lease.path))
    assert kept is not None and kept["ends_at"] is None


def test_a_restarted_launcher_knows_the_end_of_the_lease_unless_the_machine_rebooted(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    NodeLease(tmp_path / "lease", system=clock).renew(clock.now, 90.0, 18.0)
    assert NodeLease(tmp_path / "lease", system=clock).left_seconds == 90.0
    monkeypatch.setattr("eunomia_appmaster.launcher.node_lease.boot_id", lambda: "another")
    assert NodeLease(tmp_path / "lease", system=clock).left_seconds == 0.0


def test_a_damaged_lease_file_is_ignored(tmp_path: Path, clock: Clock) -> None:
    lease = NodeLease(tmp_path / "lease", system=clock)
    lease.renew(clock.now, 90.0, 18.0)
    text = lease.path.read_bytes()
    lease.path.write_bytes(text[:20] + b"7" + text[21:])
    assert read_lease(str(lease.path)) is None


# --- the parents of workers, with no launcher ----------------------------------------------------------------------


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Any]:
    """Starts workers with their shepherds and a lease; all end with the test."""
    numbers = itertools.count()
    begun: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(script: str, lease: NodeLease) -> Path:
        folder = tmp_path / f"container-{next(numbers)}"
        folder.mkdir()
        said = str(folder / "said")
        made = {"argv": [sys.executable, "-c", script], "cwd": str(folder), "env": {}, "stdout": said, "stderr": said}
        (folder / "start.json").write_text(json.dumps(made | {"lease": str(lease.path)}))
        with (folder / "report").open("wb") as report:
            command = [sys.executable, "-I", "-S", shepherd.__file__, str(folder), str(report.fileno())]
            begun.append((subprocess.Popen(command, pass_fds=[report.fileno()]), folder))
        eventually(lambda: (folder / "said").exists() and "on" in (folder / "said").read_text(), "it runs")
        return folder

    yield start
    for process, folder in begun:
        if process.poll() is None:
            subprocess.run(["kill", "-9", str(json.loads((folder / "worker.json").read_text())["pid"])], check=False)
        process.wait(30)


def end_of(folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(eventually(lambda: (folder / "exit.json").exists() and read(folder), "its end"))
    return made


def read(folder: Path) -> str:
    return (folder / "exit.json").read_text()


def test_without_a_launcher_workers_are_ordered_to_leave_and_killed_at_the_end(tmp_path: Path, containers: Any) -> None:
    lease = NodeLease(tmp_path / "lease")
    lease.renew(MACHINE.uptime(), 3600.0, 0.5)
    obeys, deaf = containers(OBEYS, lease), containers(DEAF, lease)
    lease.renew(MACHINE.uptime(), 1.5, 1.0)
    ended = [end_of(obeys), end_of(deaf)]
    assert ended[0]["code"] == 75
    assert "lease_ended" not in ended[0]
    assert (ended[1]["signal"], ended[1]["lease_ended"]) == (9, True)
    kept = read_lease(str(lease.path))
    assert kept is not None
    assert MACHINE.uptime() >= kept["ends_at"]


def test_a_shepherd_does_not_repeat_an_order_and_a_renewal_spares_workers(tmp_path: Path, containers: Any) -> None:
    lease = NodeLease(tmp_path / "lease")
    lease.renew(MACHINE.uptime(), 3600.0, 3599.9)
    lease.ordered_to_leave()
    ordered = containers(OBEYS, lease)
    lease.renew(MACHINE.uptime(), 0.0, 0.0)
    pid = json.loads((ordered / "worker.json").read_text())["pid"]
    time.sleep(1.3)  # longer than between two looks
    assert alive(pid)


# --- a launcher ----------------------------------------------------------------------------------------------------


def test_a_launcher_stops_its_workers_in_time_when_the_arbiter_is_silent(tmp_path: Path) -> None:
    with launcher_lab.lab(tmp_path) as made:
        made.arbiter.heartbeat_seconds = 0.2
        made.arbiter.lease = (4.0, 3.0)
        made.arbiter.order()
        eventually(lambda: made.arbiter.left > 0.0, "the launcher has the lease")
        runtime = made.runtime()
        runtime.start(made.gang(0, script=OBEYS))
        eventually(lambda: "on" in made.stdout(), "it runs")
        assert made.arbiter.left <= 4.0
        made.arbiter.stop()
        status = made.completed("ana-1.r1.0")
        assert status.exit is not None and status.exit.code == 75
        assert status.stop_reason == "the node's lease ends, since the arbiter does not answer"
        with pytest.raises(RuntimeAwayError, match="hold its slots by a lease"):
            runtime.start(made.gang(1, script=OBEYS, incarnation=2))


# --- the arbiter ---------------------------------------------------------------------------------------------------


def test_the_arbiter_counts_a_lease_from_its_answer_and_assumes_the_longest_possible(clock: Clock) -> None:
    held = HeldLease(system=clock)
    held.heard(0.0, endless=False)
    held.given(900.0)
    clock.now += 10.0
    held.given(90.0)  # may be lost on its way: the node may still hold the longer one
    assert held.left_seconds == 890.0
    held.heard(85.0, endless=False)  # it has arrived
    assert held.left_seconds == 85.0
    held.given(0.0)
    assert held.left_seconds == math.inf
    held.heard(0.0, endless=True)
    held.given(90.0)
    assert held.left_seconds == math.inf
    held.heard(90.0, endless=False)
    assert held.left_seconds == 90.0


def test_the_longest_lease_is_journaled_before_it_is_granted(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.sqlite", durable=False) as journal:
        leases = NodeLeases(journal, Seconds(90.0), Seconds(900.0))
        assert not leases.were_given
        leases.begin()
        assert (journal.meta[META], leases.seconds, leases.margin, leases.grace) == (90.0, 90.0, 5.0, 18.0)
        leases.lengthen()
        assert (journal.meta[META], leases.seconds) == (900.0, 900.0)
        later = NodeLeases(journal, Seconds(90.0), Seconds(900.0))
        assert (later.were_given, later.longest, later.seconds) == (True, 900.0, 90.0)
        later.all_renewed()
        assert (journal.meta[META], later.longest) == (90.0, 90.0)


def test_the_text_on_a_silent_node_states_the_end_of_its_lease(clock: Clock) -> None:
    held = HeldLease(clock.now + 50.0, system=clock)
    assert lease_words(3.0, held) == ""
    assert lease_words(40.0, held) == "silent for 40 s; its lease ends in 50 s, and its jobs start elsewhere then"
    clock.now += 51.0
    assert lease_words(91.0, held) == "silent for 91 s; its lease has ended"
    held.ends_at = math.inf
    assert lease_words(91.0, held) == ""


def test_the_only_node_has_an_endless_lease_until_another_joins(tmp_path: Path) -> None:
    with service_lab.lab(tmp_path, node_lease=Seconds(60.0)) as made:
        made.launcher.register(head=True)
        eventually(made.arbiter.service.ready.is_set, "it decides")
        assert made.launcher.beat().lease_seconds == 0.0
        annex = service_lab.Launcher(made, 2, "of annex", "annex")
        annex.register()
        assert (made.launcher.beat().lease_seconds, annex.beat().lease_seconds) == (60.0, 60.0)
        assert made.arbiter.service.journal.meta[META] == 60.0


def test_a_silent_node_is_lost_only_once_its_lease_has_ended(tmp_path: Path) -> None:
    with service_lab.lab(tmp_path, slots=2, node_lease=Seconds(60.0)) as made:
        two = Two(made)
        two.quiet()
        nodes = made.arbiter.service.nodes
        nodes.silence = Seconds(0.5)
        annex: Any = nodes.get("annex")
        eventually(lambda: annex.silent_seconds > 1.5, "it is silent")
        assert two.nodes()["annex"].state == "up"
        assert 50.0 < two.nodes()["annex"].lease_seconds <= 60.0
        annex.lease.ends_at = 0.0
        eventually(lambda: two.nodes()["annex"].state == "down", "it is lost")


def test_a_restarted_arbiter_grants_no_slot_of_a_node_that_may_have_a_longer_lease(tmp_path: Path) -> None:
    with service_lab.lab(tmp_path, slots=2, node_lease=Seconds(0.6), node_silence=Seconds(0.6)) as made:
        two = Two(made)
        made.arbiter.run(lengthen_leases(made.arbiter.service))
        assert two.annex.beat().lease_seconds == 900.0
        two.quiet()
        made.restart()
        made.ready()
        eventually(lambda: len(made.slots("down")) == 2, "the free slots of annex are left out")
        annex = two.nodes()["annex"]
        assert (annex.state, annex.why) == ("down", "not heard since the arbiter's start")
        assert 800.0 < annex.lease_seconds <= 900.0
        assert made.arbiter.service.journal.meta[META] == 900.0
        two.annex.register()
        two.beating = Beating(two.annex)
        eventually(lambda: not made.slots("down"), "they are back")
        eventually(lambda: made.arbiter.service.journal.meta[META] == 0.6, "no node holds the longer one")
        two.quiet()


# --- an app master -------------------------------------------------------------------------------------------------


def test_an_app_master_without_an_answer_for_a_whole_lease_is_cut_off(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = ArbiterLink("127.0.0.1:1", tmp_path / "token", "ana", 1, Outbox(clock), clock.flag(), system=clock)
    answer = arbiter_pb.RegisterApplicationMasterResponse(lease_seconds=90.0)

    def insist(call: Any) -> Any:
        link._sent = clock.now - 1.0
        return answer

    monkeypatch.setattr(link, "_insist", insist)
    link.register([])
    clock.now += 89.0
    assert not link.is_cut_off
    clock.now += 0.1
    assert link.is_cut_off
    answer.lease_seconds = 0.0  # of an arbiter with one node
    link.register([])
    clock.now += 1e6
    assert not link.is_cut_off
