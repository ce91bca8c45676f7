"""The pace of a slot: what its job could have had, judged from real processes in a real control group."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eunomia_appmaster.node.control_groups import (
    ControlGroup,
    CpuQuota,
    GroupLimits,
    NoGroup,
    Throttled,
    choose,
    record_of,
)
from eunomia_appmaster.node.control_groups.version1 import Version1Group
from eunomia_appmaster.node.control_groups.version2 import Version2Group
from eunomia_appmaster.node.kept_files import sealed
from eunomia_testbed.replay.pace import LEAST_PACE, RunPace, SlotPace, Spent
from eunomia_testbed.replay.pace_meter import GroupMeter, PaceMeter, Reading, ThreadSeconds

CPUS = 0.35
BUSY = "while True: pass"
WAITING = """import time
while True:
    end = time.thread_time() + 0.001
    while time.thread_time() < end:
        pass
    time.sleep(0.2)
"""
CPU = str(max(os.sched_getaffinity(0)))


def _spent(*, used: float, waited: float, throttled: float, seconds: float = 10.0) -> Spent:
    return Spent(seconds=seconds, used_seconds=used, waited_seconds=waited, throttled_seconds=throttled, cpus=CPUS)


@pytest.mark.parametrize(
    ("spent", "due"),
    [
        (_spent(used=3.5, waited=6.5, throttled=6.5), 3.5),  # its quota alone held it back
        (_spent(used=3.5, waited=6.5, throttled=3.0), 3.5),  # waits for a core that its quota made up for
        (_spent(used=1.0, waited=0.0, throttled=0.0), 1.0),  # it waited by itself
        (_spent(used=2.0, waited=8.0, throttled=0.0), 3.5),  # ready all the time
        (_spent(used=1.0, waited=5.0, throttled=0.0), 2.0),  # half of the time was lost
        (_spent(used=0.0, waited=20.0, throttled=0.0), 3.5),  # two threads without a core
        (_spent(used=3.6, waited=6.0, throttled=7.0), 3.6),  # a slice beyond the quota
    ],
)
def test_a_slot_is_due_what_its_job_would_have_used_without_the_lost_time(spent: Spent, due: float) -> None:
    assert spent.due_seconds == pytest.approx(due)


def test_the_worst_slot_and_the_speed_of_a_core_decide_whether_a_run_counts() -> None:
    slots = (
        SlotPace(slot=0, seconds=60.0, used_seconds=9.9, due_seconds=10.0),
        SlotPace(slot=1, seconds=60.0, used_seconds=9.7, due_seconds=10.0),
        SlotPace(slot=2, seconds=1.0, used_seconds=0.1, due_seconds=0.2),  # too short to be judged
    )
    good = RunPace(slots=slots)
    assert (good.fraction, good.is_valid) == (0.97, True)
    assert good.describe() == "paced: every slot had at least 97.0% of its pace"
    slow = RunPace(slots=slots, speed=0.9)
    assert not slow.is_valid
    assert slow.describe() == (
        "invalid: slot 1 had 87.3% of its pace, but must have 95% (CPU time 97.0%, speed of a core 90.0%)"
    )
    assert RunPace(slots=slots, asleep_seconds=40.0).describe() == "invalid: the machine stood still for 40 s"
    assert RunPace.from_plain(slow.to_plain()) == slow


def test_without_quotas_a_run_is_unpaced_and_not_judged() -> None:
    assert RunPace(speed=0.5).is_valid
    assert RunPace(speed=0.5).describe().startswith("unpaced: ")
    meter = GroupMeter(0, NoGroup())
    meter.sample()
    assert meter.periods == []


def test_quota_and_throttled_time_are_read_in_both_versions(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("3500 10000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("3500\n")
    (tmp_path / "cpu.cfs_period_us").write_text("10000\n")
    quota, throttled = CpuQuota(amount_seconds=0.0035, period_seconds=0.01), Throttled(periods=3, seconds=2.5)
    second = Version2Group(tmp_path)
    assert (second.cpu_quota(), second.throttled()) == (quota, throttled)
    (tmp_path / "cpu.stat").write_text("nr_periods 9\nnr_throttled 3\nthrottled_time 2500000000\n")
    first = Version1Group({"cpu": tmp_path})
    assert (first.cpu_quota(), first.throttled()) == (quota, throttled)
    assert quota.cpus == pytest.approx(0.35)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    assert (second.cpu_quota(), first.cpu_quota()) == (None, None)
    assert (Version1Group({}).cpu_quota(), Version1Group({}).throttled()) == (None, None)
    assert Version2Group(tmp_path / "gone").throttled() is None


QUOTA = CpuQuota(amount_seconds=0.0035, period_seconds=0.01)


def _spent_by(times: ThreadSeconds, *, throttled: Throttled, stalled: float | None = None) -> Spent:
    """Return how 10 s were spent, from two readings of the counters."""
    before = Reading(
        at=0.0, times=ThreadSeconds(), stalled_seconds=0.0, throttled=Throttled(periods=0, seconds=0.0), quota=QUOTA
    )
    return before.until(Reading(at=10.0, times=times, stalled_seconds=stalled, throttled=throttled, quota=QUOTA))


def test_a_used_up_period_counts_as_held_back_to_its_end_even_if_the_kernel_counts_less() -> None:
    times = ThreadSeconds(used=3.5, waited_least=6.5, waited_most=6.5)
    spent = _spent_by(times, throttled=Throttled(periods=990, seconds=3.0))
    assert spent.throttled_seconds == pytest.approx(990 * 0.0065)
    assert spent.lost_seconds == pytest.approx(6.5 - 6.435)


@pytest.mark.parametrize(("stalled", "waited"), [(None, 2.0), (1.0, 2.0), (2.5, 2.5), (9.0, 3.0)])
def test_threads_that_wait_at_the_same_time_wait_once(stalled: float | None, waited: float) -> None:
    times = ThreadSeconds(used=1.0, waited_least=2.0, waited_most=3.0)
    spent = _spent_by(times, throttled=Throttled(periods=0, seconds=0.0), stalled=stalled)
    assert spent.waited_seconds == waited


def test_pressure_is_read_from_the_unified_hierarchy(tmp_path: Path) -> None:
    line = "avg10=1.00 avg60=0.00 avg300=0.00 total="
    (tmp_path / "cpu.pressure").write_text(f"some {line}9000000\nfull {line}2500000\n")
    assert Version2Group(tmp_path).stalled_seconds() == 2.5
    assert Version1Group({"cpu": tmp_path, "unified": tmp_path}).stalled_seconds() == 2.5
    assert Version1Group({"cpu": tmp_path}).stalled_seconds() is None
    assert NoGroup().stalled_seconds() is None


# -- real processes in a real group


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ControlGroup]:
    """A group with the pace of a slot, whose processes go before those of other groups."""
    groups = choose(tmp_path / "state")
    if "cpu" not in groups.controllers or os.geteuid() != 0:
        groups.close()
        pytest.skip(f"no pace can be kept here: {groups.describe()}")
    made = groups.make("pace@1", GroupLimits(cpus=CPUS))
    for folder in made.folders.values():
        for name, most in (("cpu.shares", "262144"), ("cpu.weight", "10000")):
            if (folder / name).exists():
                (folder / name).write_text(most)
    yield made
    made.kill()
    deadline = time.monotonic() + 10.0
    while not made.is_empty() and time.monotonic() < deadline:
        time.sleep(0.01)
    made.remove()
    groups.close()


@contextlib.contextmanager
def running(code: str, *before: str, group: ControlGroup | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python code on one CPU, in a group, until the context ends."""
    process = subprocess.Popen([*before, "taskset", "-c", CPU, sys.executable, "-c", code])
    try:
        for file in () if group is None else group.join_files:
            Path(file).write_text(str(process.pid))
        yield process
    finally:
        process.kill()
        process.wait()


def _measured(group: ControlGroup, seconds: float = 1.2) -> SlotPace:
    meter = GroupMeter(3, group)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        meter.sample()
        time.sleep(0.2)
    meter.finish()
    return SlotPace.of(3, meter.periods)


def test_a_competing_process_that_takes_a_slots_time_is_found(group: ControlGroup) -> None:
    for folder in group.folders.values():  # its parent competes with the process, for a sixth of the core
        for name, less in (("cpu.shares", "200"), ("cpu.weight", "20")):
            if (folder.parent / name).exists():
                (folder.parent / name).write_text(less)
    with running(BUSY, group=group), running(BUSY):
        found = _measured(group)
    assert found.fraction < LEAST_PACE
    assert found.due_seconds > found.used_seconds


def test_a_job_that_waits_by_itself_is_due_what_it_used(group: ControlGroup) -> None:
    with running(WAITING, group=group):
        found = _measured(group)
    assert found.used_seconds > 0.0
    assert found.due_seconds - found.used_seconds < 0.01 * CPUS * found.seconds


def test_a_job_that_could_always_run_is_due_its_quota(group: ControlGroup) -> None:
    with running(BUSY, group=group):
        found = _measured(group)
    assert found.due_seconds == pytest.approx(CPUS * found.seconds, rel=0.1)


def test_the_meter_finds_the_containers_of_a_state_folder_and_calibrates(tmp_path: Path, group: ControlGroup) -> None:
    live = tmp_path / "state" / "launcher" / "live"
    for name, slot in (("a-1", 2), ("master", -1)):
        (tmp_path / name).mkdir()
        record = {"container_id": name, "slot": slot, "group": record_of(group)}
        (tmp_path / name / "container.json").write_text(sealed(record))
        live.mkdir(parents=True, exist_ok=True)
        (live / name).symlink_to(tmp_path / name)
    with running(BUSY, group=group), PaceMeter(tmp_path / "state") as meter:
        time.sleep(2.2)
    found = meter.result()
    assert [each.slot for each in found.slots] == [2]
    assert found.slots[0].used_seconds > 0.0
    assert found.loops >= 1
    assert found.is_paced
