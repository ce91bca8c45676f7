"""A launcher binds the processes of a slot to as many cores as its lease has CPUs, while they run."""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.launcher.cores import Cores
from eunomia_appmaster.protocol import launcher_pb2 as pb

_spec = importlib.util.spec_from_file_location("launcher_lab", Path(__file__).parent / "launcher_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab_module = sys.modules.setdefault("launcher_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, lab = lab_module.eventually, lab_module.lab

CORES = sorted(os.sched_getaffinity(0))
needs_two = pytest.mark.skipif(len(CORES) < 2, reason="this process may use one core only")
SCRIPT = """
import json, os, socket, subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path("pids").write_text(f"{os.getpid()} {child.pid}")
folder = os.open(os.environ["EUNOMIA_CONTAINER_DIR"], os.O_RDONLY)
while True:
    orders = socket.socket(socket.AF_UNIX)
    try:
        orders.connect(f"/proc/self/fd/{folder}/orders.sock")
        orders.sendall(json.dumps({"hello": {"pid": os.getpid(), "rank": 0}}).encode() + b"\\n")
        for line in orders.makefile():
            print(line, end="", flush=True)
    except OSError:
        pass
    time.sleep(0.05)
"""


@pytest.fixture
def lab_of_three(tmp_path: Path) -> Iterator[Any]:
    with lab(tmp_path) as made:
        yield made


def test_a_slot_gets_whole_cores_and_first_those_that_no_other_slot_uses() -> None:
    cores = Cores(every=frozenset({0, 1, 2, 3}))
    assert [cores.set(0, 5, 2.0), cores.set(1, 5, 1.5), cores.set(2, 5, 0.25)] == [True, True, True]
    assert [sorted(cores.of(slot, 5) or ()) for slot in range(3)] == [[0, 1], [2, 3], [0]]
    assert cores.set(1, 6, 9.0)
    assert cores.of(1, 6) == frozenset({0, 1, 2, 3})
    assert cores.set(1, 7, 1.0)
    assert cores.of(1, 7) == frozenset({2})  # of its own, one that no other slot has


def test_an_order_of_an_older_lease_is_ignored_and_a_newer_lease_starts_unbound() -> None:
    cores = Cores(every=frozenset({0, 1}))
    assert cores.epoch(0) == 0
    assert cores.of(0, 1) is None
    assert cores.set(0, 5, 1.0)
    assert not cores.set(0, 5, 1.0)
    assert not cores.set(0, 4, 2.0)
    assert (cores.epoch(0), cores.of(0, 4), cores.of(0, 5), cores.of(0, 6)) == (5, {0}, {0}, None)


@needs_two
def test_all_processes_on_a_slot_are_bound_and_none_is_restarted(lab_of_three: Any) -> None:
    made = lab_of_three
    epoch = time.time_ns()
    made.runtime().start(made.gang(1, script=SCRIPT, epoch=epoch))
    pids = eventually(lambda: _pids(made))
    assert [_bound(pid) for pid in pids] == [set(CORES), set(CORES)]
    made.arbiter.order(tunes=[pb.Tune(slot=1, epoch=epoch + 1, cpus=1.0)])
    eventually(lambda: made.arbiter.slots[1].tuned_epoch == epoch + 1)
    eventually(lambda: [len(_bound(pid)) for pid in pids] == [1, 1])
    made.kill()
    made.start()
    assert [len(_bound(pid)) for pid in pids] == [1, 1]
    made.arbiter.order(tunes=[pb.Tune(slot=1, epoch=epoch + 2, cpus=2.0)])
    eventually(lambda: [len(_bound(pid)) for pid in pids] == [2, 2])
    made.arbiter.order(tunes=[pb.Tune(slot=1, epoch=epoch + 1, cpus=1.0)])  # late: it was overtaken
    eventually(lambda: {"order": "threads", "count": 2} in _orders(made))
    eventually(lambda: made.arbiter.slots[1].tuned_epoch == epoch + 2)  # of the launcher that was started again
    assert [len(_bound(pid)) for pid in pids] == [2, 2]
    assert _pids(made) == pids
    assert _orders(made)[0] == {"order": "threads", "count": 1}


@needs_two
def test_a_process_that_starts_later_under_the_lease_is_bound_too(lab_of_three: Any) -> None:
    made = lab_of_three
    epoch = time.time_ns()
    made.arbiter.order(tunes=[pb.Tune(slot=1, epoch=epoch, cpus=1.0)])
    eventually(lambda: made.arbiter.slots[1].tuned_epoch == epoch)
    made.runtime().start(made.gang(1, script=SCRIPT, epoch=epoch))
    pids = eventually(lambda: _pids(made))
    eventually(lambda: [len(_bound(pid)) for pid in pids] == [1, 1])
    eventually(lambda: _orders(made) and _orders(made)[0] == {"order": "threads", "count": 1})


def _pids(made: Any) -> list[int]:
    path = made.folder / "pids"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def _bound(pid: int) -> set[int]:
    """Cores that a process may use, by all its threads."""
    threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    seen = {frozenset(os.sched_getaffinity(thread)) for thread in threads}
    assert len(seen) == 1
    return set(seen.pop())


def _orders(made: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in made.stdout().splitlines()]
