"""A process that SIGKILL does not end keeps its slot, and is named by its launcher and by the arbiter."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.runtimes import ContainerState, SlotBusyError


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


launcher_lab, service_lab = _load("launcher_lab"), _load("service_lab")
eventually = launcher_lab.eventually

CANNOT_KILL = """
import os, sys
if "eunomia_appmaster.launcher" in sys.orig_argv:
    from eunomia_appmaster.launcher import unkilled
    really, unkilled.UNKILLED_SECONDS = unkilled.kill, 0.5
    unkilled.kill = lambda found: really(found) if os.path.exists({file!r}) else None
"""
DEAF = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)\n"


def test_a_launcher_names_a_process_that_sigkill_does_not_end_and_keeps_its_slot(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CANNOT_KILL.format(file=str(tmp_path / "may kill")))
    with launcher_lab.lab(tmp_path, "--control-groups", "none", more_path=str(tmp_path)) as lab:
        try:
            lab.runtime().start(lab.gang(0, script=DEAF))
            eventually(lambda: lab.stdout() == "up\n")
            pid = lab.status("ana-1.r1.0").pid
            lab.arbiter.order(revocations=[lpb.Revocation(slot=0, epoch=1, deadline_seconds=0.0)])
            (left,) = eventually(lambda: lab.arbiter.slots[0].unkilled, "it is named")
            assert (left.pid, left.state, left.app, left.job) == (pid, "S", "ana", 1)
            assert lab.arbiter.slots[0].busy
            eventually(lambda: "process.not_killed" in lab.output(), "its log names it")
            assert launcher_lab.alive(pid)
            assert lab.status("ana-1.r1.0").state is ContainerState.STOPPING
            with pytest.raises(SlotBusyError, match="slot 0 must be free before a start"):
                lab.runtime().start(lab.gang(0, script="", job=2, epoch=2), wait_seconds=0.5)
            assert not lab.arbiter.slots[1].unkilled
            assert lab.output().count("process.not_killed") == 1
            lab.kill()
            lab.start()
            assert eventually(lambda: lab.arbiter.slots[0].unkilled, "the next launcher names it")[0].pid == pid
        finally:
            (tmp_path / "may kill").touch()
        eventually(lambda: not lab.arbiter.slots[0].busy, "it has ended")
        assert not lab.arbiter.slots[0].unkilled
        assert not launcher_lab.alive(pid)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Any]:
    with service_lab.two_nodes(tmp_path, 2.0) as made:
        yield made


def test_the_arbiter_names_the_process_and_gives_its_slot_to_no_job(two: Any) -> None:
    master = two.lab.master("ana", "4")
    master.register()
    master.beat_until(lambda: master.leases, jobs_added=[service_lab.gang("ana/1", 4)])
    (lease,) = master.leases.values()
    left = [lpb.UnkilledProcess(pid=4711, state="D", app="ana", job=1)]
    two.annex.busy.add(1)
    two.annex.unkilled[1] = left
    two.annex.report()
    master.beat(release=[pb.Release(lease=lease.id, epoch=lease.epoch, gpus=[0, 1, 2, 3])], jobs_paused=["ana/1"])
    words = "slot 1 waits for process 4711 of ana/1 (state D: waits for storage or a device), killed but not ended"
    seen = eventually(lambda: (one := two.nodes()["annex"]).why and one, "it is named")
    assert (seen.state, seen.why) == ("up", words)
    eventually(lambda: two.lab.slots("leaving") == [3], "the other slots are back")
    master.beat(jobs_added=[service_lab.gang("ana/2", 4)])
    text = two.call("Explain", pb.ExplainRequest(job="ana/2"))
    assert f"annex: {words}" in str(text)
    assert two.lab.slots("held") == []
    two.annex.busy.clear()
    two.annex.unkilled.clear()
    two.annex.report()
    master.beat_until(lambda: any(known != lease.id for known in master.leases))
    assert two.nodes()["annex"].why == ""
