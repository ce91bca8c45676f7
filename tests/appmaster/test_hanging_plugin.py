"""A plugin that hangs for an hour, under real processes: it is named, the fallback serves, and two apps finish."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.appmaster.serving_lab import supervisor

from eunomia.contract.decisions import Fault
from eunomia.errors import UnreachableError
from eunomia.journal.journal import read_journal
from eunomia.units import Stage
from eunomia_appmaster.client import Client
from eunomia_appmaster.service.watchdog import HUNG_FILE, Watchdog

HERE = Path(__file__).parent
ROOTS = ":".join(str(HERE.parent.parent / root) for root in ("core", "solvers", "plugins", "appmaster", "hpo_adapters"))
PLUGIN = '''
"""Serves one app, and hangs once there are two."""

import time

import numpy as np

from eunomia import Allocation, Menus, Offer, Reason, Snapshot, hookimpl


class Tired:
    """Serves by arrival until a second app comes."""

    name = "tired"
    api = 1

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        if snapshot.active_apps.size > 1:
            time.sleep(3600.0)
        jobs, free, sizes = offer.candidates, offer.free_gpus, []
        for job in jobs.tolist():
            sizes.append(menus.largest_at_most(job, free))
            free -= sizes[-1]
        return Allocation.to_jobs(jobs, np.array(sizes, dtype=np.int64), otherwise=Reason.OUTRANKED)
'''
APP = """
[app]
name = "{name}"
[job]
command = "python wait_for_end.py"
slots = 1
"""


SCRIPT = """
import os, time
while not os.path.exists("end"):
    time.sleep(0.05)
"""


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_the_fallback_serves_after_a_plugin_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "wait_for_end.py").write_text(SCRIPT)
    (work / "tired.py").write_text(PLUGIN)
    for name in ("ana", "ben"):
        (work / f"{name}.toml").write_text(APP.format(name=name))
    monkeypatch.chdir(work)
    monkeypatch.setenv("PYTHONPATH", ROOTS)
    monkeypatch.setenv("EUNOMIA_PLUGIN_PATH", str(work / "tired.py"))
    with (
        supervisor(
            tmp_path,
            policy="tired",
            settings=["rounds.faults_allowed=1", "rounds.suspend_grace=1s"],
            log_dir=tmp_path,
            arbiter_options=["--step-limit-seconds", "8"],
            launcher_options=["--no-zygote"],
        ) as town,
        Client(town.address, token_file=town.token_file) as client,
    ):
        client.submit("ana.toml")
        await_true(lambda: client.app("ana").running == 1)
        client.submit("ben.toml")
        await_true(lambda: client.health().fallback)
        (work / "end").touch()
        await_true(lambda: [app.state for app in client.list().apps] == ["finished", "finished"])
        health = client.health()
        assert health.fallback
        assert town.arbiter is not None
        assert town.arbiter.restarts == 1
    with read_journal(tmp_path / "state" / "journal.sqlite") as journal:
        faulty = [step.decision for step in journal.steps() if step.decision.faulty]
    (fault,) = [fault for decision in faulty for fault in decision.faults]
    assert (fault.plugin, fault.stage) == ("tired", Stage.ALLOCATION)
    assert "in eunomia_allocation (tired.py:" in fault.what
    assert not any(decision.transitions for decision in faulty)


def await_true(look: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait; an arbiter that is just being restarted is asked again."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(UnreachableError):
            if look():
                return
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.1)


def call(watchdog: Watchdog, plugin: str, stage: Stage) -> None:
    """Record a call as a round does."""
    numbers, codes = watchdog.note
    numbers[2], numbers[1], numbers[0] = 1, codes[plugin, stage], 1


def test_the_watchdog_does_not_report_a_step_that_returns(tmp_path: Path) -> None:
    watchdog = Watchdog(tmp_path, 30.0)
    with watchdog.step():
        call(watchdog, "fifo", Stage.VALUATION)
    assert Watchdog(tmp_path, 30.0).fault() is None


def test_the_watchdog_names_the_plugin_that_was_called_last(tmp_path: Path) -> None:
    before = Watchdog(tmp_path, 2.0)
    call(before, "fifo", Stage.VALUATION)
    call(before, "a_longer_name_than_the_other", Stage.PLACEMENT)
    call(before, "tired", Stage.ALLOCATION)
    trace = 'Timeout (0:00:02)!\nThread 0x1 (most recent call first):\n  File "/a/np.py", line 3 in solve\n'
    (tmp_path / HUNG_FILE).write_text(f'{trace}  File "/a/tired.py", line 12 in eunomia_allocation\n')
    after = Watchdog(tmp_path, 2.0)
    what = "the step was over 2 s and abandoned, in eunomia_allocation (tired.py:12)"
    assert after.fault() == Fault(plugin="tired", stage=Stage.ALLOCATION, what=what)
    after.forget()
    assert after.fault() is None


@pytest.mark.parametrize("damage", [b"\xff", b"x", b"\x00\xfe" * 5000])
def test_a_damaged_watchdog_file_does_not_stop_the_arbiter(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / HUNG_FILE).write_bytes(damage)
    assert Watchdog(tmp_path, 2.0).fault() is None
    assert (tmp_path / HUNG_FILE).read_bytes() == b""
    (tmp_path / HUNG_FILE).write_bytes(b"Timeout (0:00:02)!\n" + damage)
    fault = Watchdog(tmp_path, 2.0).fault()
    assert fault is not None
    assert fault.what == "the step was over 2 s and abandoned"
