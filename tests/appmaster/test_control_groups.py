"""Control groups: which a machine has, what is written in which order, what is read back.

The files of version 2's controllers are plain files here, since most machines on which the tests run delegate none;
``test_slot_enforced.py`` uses what the machine really has.
"""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eunomia.errors import InputError
from eunomia_appmaster.launcher.confinement import Confinement
from eunomia_appmaster.launcher.container import NO_SLOT, Container
from eunomia_appmaster.launcher.cores import Cores
from eunomia_appmaster.node.control_groups import (
    BESIDE_PACED_WEIGHT,
    PACED_WEIGHT,
    ControlGroup,
    GroupLimits,
    NoGroups,
    choose,
    folders,
    of_record,
    record_of,
)
from eunomia_appmaster.node.control_groups.groups import quota
from eunomia_appmaster.node.control_groups.mounts import find
from eunomia_appmaster.node.control_groups.version1 import Version1Group
from eunomia_appmaster.node.control_groups.version2 import Version2Group
from eunomia_appmaster.node.local_machine import LocalMachine, LocalSlot
from eunomia_appmaster.protocol import launcher_pb2 as pb

HYBRID_MOUNTS = """\
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 /docker/ab /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 30 0:30 /other /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
"""
HYBRID_OWN = "5:cpuacct,cpu:/\n4:memory:/docker/ab/job\n3:pids:/docker/ab\n1:name=systemd:/x\n0::/user.slice\n"
UNIFIED_MOUNTS = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
LIMITS = GroupLimits(cpus=0.5, memory_bytes=1 << 30, processes=100)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def _mounted(machine: Path, mounts: str, own: str) -> None:
    (machine / "proc/self/mountinfo").write_text(mounts)
    (machine / "proc/self/cgroup").write_text(own)


def _files(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("")


@pytest.mark.parametrize(
    ("cpus", "microseconds"),
    [
        (1.0, (10_000, 10_000)),
        (0.5, (5000, 10_000)),
        (2.5, (25_000, 10_000)),
        (0.2, (2000, 10_000)),
        (0.15, (3000, 20_000)),
        (0.05, (1000, 20_000)),
        (0.01, (1000, 100_000)),
        (0.0001, (1000, 1_000_000)),
    ],
)
def test_the_quota_has_a_period_of_10_to_20_ms_if_the_kernel_accepts_it(
    cpus: float, microseconds: tuple[int, int]
) -> None:
    assert quota(cpus) == microseconds


def test_the_control_groups_of_the_current_process_are_found_in_the_mounted_hierarchies(machine: Path) -> None:
    _mounted(machine, HYBRID_MOUNTS, HYBRID_OWN)
    top = machine / "sys/fs/cgroup"
    assert find(machine).own == {
        "cpu": top / "cpu,cpuacct",
        "cpuacct": top / "cpu,cpuacct",
        "memory": top / "memory/job",  # the mount shows the part of the tree below /docker/ab
        "unified": top / "unified/user.slice",  # pids is not visible: its mount shows another part
    }


def test_without_a_writable_control_group_the_launcher_states_why_and_sets_no_limits(machine: Path) -> None:
    groups = choose(machine / "state", root=machine)
    assert groups.describe() == "slots are not enforced, no control groups: none is mounted"
    group = groups.make("a@1", LIMITS)
    assert (group.processes(), group.is_empty(), group.out_of_memory_kills(), groups.left()) == ([], True, None, {})
    group.limit(LIMITS)
    group.kill()
    group.remove()
    groups.close()
    _mounted(machine, HYBRID_MOUNTS, HYBRID_OWN)  # mounted, but nothing is there
    _files(machine / "sys/fs/cgroup/cpu,cpuacct")
    assert (
        choose(machine / "state", root=machine).describe().startswith("slots are not enforced, no control groups: v1: ")
    )
    assert list((machine / "sys/fs/cgroup").rglob("eunomia-*")) == []


@pytest.mark.parametrize("wanted", ["v2", "v1", "v3", ""])
def test_a_requested_version_of_control_groups_that_does_not_work_is_refused(machine: Path, wanted: str) -> None:
    with pytest.raises(InputError, match="control groups must"):
        choose(machine / "state", wanted, root=machine)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are written, in their order; two writes within a tick of the kernel have one time."""
    names: list[str] = []

    def noted(path: Path, value: object) -> None:
        names.append(path.name)
        write(path, value)

    write = folders.write
    monkeypatch.setattr(folders, "write", noted)
    return names


def test_version_1_lowers_memory_before_swap_and_raises_swap_before_memory(tmp_path: Path, writes: list[str]) -> None:
    group, written = _fake_version1(tmp_path), []
    pipes = [tmp_path / "memory/a" / name for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")]
    for before, limit in ((1 << 40, 1 << 30), (1 << 20, 1 << 30)):
        pipes[0].write_text(str(before))
        writes.clear()
        group.limit(GroupLimits(memory_bytes=limit))
        written.append([name for name in writes if name.startswith("memory")])
        assert [path.read_text()[:10] for path in pipes] == [str(limit)] * 2
    assert written == [[path.name for path in pipes], [path.name for path in reversed(pipes)]]


def _fake_version1(tmp_path: Path) -> Version1Group:
    _files(tmp_path / "memory/a", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    _files(tmp_path / "cpu/a", "cpu.cfs_quota_us", "cpu.cfs_period_us")
    _files(tmp_path / "pids/a", "pids.max")
    return Version1Group({tree: tmp_path / tree / "a" for tree in ("memory", "cpu", "pids")})


def test_version_1_reads_the_memory_in_use_and_the_oom_kills(tmp_path: Path) -> None:
    group = _fake_version1(tmp_path)
    folder = tmp_path / "memory/a"
    assert (group.memory_in_use(), group.memory_limit(), group.out_of_memory_kills()) == (None, None, None)
    (folder / "memory.usage_in_bytes").write_text("1000\n")
    (folder / "memory.stat").write_text("cache 5\ntotal_inactive_file 300\ntotal_active_file 200\n")
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert (group.memory_in_use(), group.memory_limit(), group.out_of_memory_kills()) == (500, None, 3)


def test_version_2_writes_limits_and_reads_usage(tmp_path: Path, writes: list[str]) -> None:
    folder = tmp_path / "a"
    names = ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "pids.max")
    _files(folder, *names)
    group = Version2Group(folder)
    group.limit(LIMITS)
    assert [(folder / name).read_text() for name in names] == ["1073741824", "0", "1", "5000 10000", "100"]
    assert writes == list(names)
    group.limit(GroupLimits())
    assert (folder / "cpu.max").read_text().startswith("max 100000")
    (folder / "memory.max").write_text("5000\n")
    (folder / "memory.current").write_text("1000\n")
    (folder / "memory.stat").write_text("anon 1\ninactive_file 300\nactive_file 200\nslab_reclaimable 50\n")
    (folder / "memory.events").write_text("low 0\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert (group.memory_limit(), group.memory_in_use(), group.out_of_memory_kills()) == (5000, 450, 1)
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert not group.is_empty()


def test_a_paced_group_and_all_groups_of_its_launcher_have_a_greater_weight(tmp_path: Path) -> None:
    groups = choose(tmp_path / "state")
    if "cpu" not in groups.controllers:
        groups.close()
        pytest.skip(f"no weight can be set here: {groups.describe()}")
    try:
        made = groups.make("a@1", GroupLimits(cpus=0.5))
        home = (made.folders.get("cpu") or made.folders["unified"]).parent
        name, default = ("cpu.shares", 1024) if (home / "cpu.shares").exists() else ("cpu.weight", 100)
        assert [int((folder / name).read_text()) for folder in (home, home / "a@1")] == [default, default]
        made = groups.make("a@1", GroupLimits(cpus=0.5, cpu_weight=PACED_WEIGHT))
        assert [int((folder / name).read_text()) for folder in (home, home / "a@1")] == [8 * default, 8 * default]
        light = groups.make("b@1", GroupLimits(cpu_weight=BESIDE_PACED_WEIGHT))
        weights = [int((folder / name).read_text()) for folder in (home, home / "b@1")]
        assert weights == [8 * default, default * BESIDE_PACED_WEIGHT // 100]
        light.remove()
        made.limit(GroupLimits(cpus=0.4))  # a change of the quota keeps it
        assert int((home / "a@1" / name).read_text()) == 8 * default
        made.remove()
    finally:
        groups.close()


def test_only_paced_slots_have_a_greater_weight(tmp_path: Path) -> None:
    slots = tuple(
        LocalSlot(index=index, gpu_type="cpu", cpus=0.5, memory_gib=1.0, uuid="", island=0, is_paced=index == 0)
        for index in (0, 1)
    )
    machine = LocalMachine(host="box", slots=slots, cpus=1.0, memory_gib=2.0)
    confinement = Confinement(NoGroups("a test"), machine)
    weights = []
    for slot in (0, 1, NO_SLOT):
        container = Container(pb.ContainerStatus(container_id="a", slot=slot), tmp_path)
        weights.append(confinement.limits(container, Cores()).cpu_weight)
    assert weights == [PACED_WEIGHT, None, BESIDE_PACED_WEIGHT]
    unpaced = LocalMachine(host="box", slots=slots[1:], cpus=1.0, memory_gib=2.0)
    master = Container(pb.ContainerStatus(container_id="a", slot=NO_SLOT), tmp_path)
    assert Confinement(NoGroups("a test"), unpaced).limits(master, Cores()).cpu_weight is None


def test_version_2_uses_the_group_that_a_service_manager_delegates(machine: Path) -> None:
    _mounted(machine, UNIFIED_MOUNTS, "0::/app.slice/eunomia.service/eunomia-service\n")
    unit = machine / "sys/fs/cgroup/app.slice/eunomia.service"
    _files(unit / "eunomia-service", "cgroup.procs", "cgroup.controllers")
    (unit / "eunomia-service/cgroup.controllers").write_text("memory pids\n")
    _files(unit, "cgroup.subtree_control")
    (unit / "cgroup.controllers").write_text("memory pids\n")
    groups = choose(machine / "state", root=machine)  # in plain files no controller's file appears in a new group
    assert groups.kind == "v2" or "subtree_control" in groups.describe()
    assert (unit / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert not (unit / "eunomia-service/cgroup.subtree_control").exists()


def test_version_2_without_delegated_controllers_is_refused_unless_only_killing_is_needed(machine: Path) -> None:
    _mounted(machine, UNIFIED_MOUNTS, "0::/session.scope\n")
    own = machine / "sys/fs/cgroup/session.scope"
    _files(own, "cgroup.events", "cgroup.subtree_control", "cgroup.controllers", "cgroup.procs")
    with pytest.raises(InputError, match=r"none of cpu, memory, pids is delegated .*--control-groups kill accepts"):
        choose(machine / "state", "v2", root=machine)
    for wanted in ("kill", "auto"):
        groups = choose(machine / "state", wanted, root=machine)
        assert (groups.kind, "kill alone" in groups.describe()) == ("v2", True)
        groups.close()


def test_version_2_does_not_move_processes_of_other_programs(machine: Path) -> None:
    _mounted(machine, UNIFIED_MOUNTS, "0::/session.scope\n")
    own = machine / "sys/fs/cgroup/session.scope"
    _files(own, "cgroup.events", "cgroup.subtree_control")
    (own / "cgroup.controllers").write_text("cpu memory pids\n")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n{os.getppid()}\n")
    said = choose(machine / "state", root=machine).describe()
    assert f"must hold Eunomia's processes alone (systemd: Delegate=yes), but also holds process {os.getppid()}" in said
    assert not (own / "eunomia-service").exists()


@pytest.mark.parametrize("kind", ["v2", "v1"])
def test_a_group_is_killed_with_all_its_processes_and_found_again_by_its_record(tmp_path: Path, kind: str) -> None:
    try:
        groups = choose(tmp_path, kind)
    except InputError as error:
        pytest.skip(str(error))
    group = groups.make("a@1", LIMITS)
    try:
        join = "".join(f"echo 0 > '{file}'; " for file in group.join_files)
        started = subprocess.Popen(["/bin/sh", "-c", f"{join} setsid sleep 600 & setsid sleep 600 & wait"])
        while len(group.processes()) < 3:
            assert started.poll() is None
        found = of_record(record_of(group))
        assert found.processes() == group.processes()
        assert (found.is_empty(), list(groups.left())) == (False, ["a@1"])
        found.kill()
        assert started.wait() == -9
        while not found.is_empty():
            pass
        assert found.processes() == []
    finally:
        group.kill()
        group.remove()
        groups.close()
    assert group.gone
    assert (group.processes(), group.is_empty(), group.memory_in_use()) == ([], True, None)
    with pytest.raises(OSError, match="a@1"):
        group.limit(LIMITS)


def test_a_device_that_is_closed_to_a_group_cannot_be_opened_in_it(tmp_path: Path) -> None:
    groups = choose(tmp_path)
    group = groups.make("a@1", GroupLimits(closed_devices=("c 1:7",)))
    try:
        if "devices" not in groups.controllers:
            pytest.skip(f"no device can be closed here: {groups.describe()}")
        join = "".join(f"echo 0 > '{file}'; " for file in group.join_files)
        script = f"{join} echo x > /dev/null && cat /dev/full"
        ended = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (1, "cat: /dev/full: Operation not permitted\n")
    finally:
        group.remove()
        groups.close()


def test_a_worker_may_open_only_the_gpus_of_its_gang(tmp_path: Path) -> None:
    slots = [
        LocalSlot(index=index, gpu_type="A100", uuid=f"GPU-{index}", island=0, cpus=2.0, memory_gib=4.0, device=device)
        for index, device in enumerate(("c 195:0", "c 195:1", "c 195:2", ""))
    ]
    machine = LocalMachine(host="box7", slots=tuple(slots), cpus=8.0, memory_gib=16.0)
    asked: list[GroupLimits] = []
    confinement = Confinement(_Recorded("recorded", asked=asked), machine)
    for slot in (1, NO_SLOT):
        container = Container(pb.ContainerStatus(container_id="a", slot=slot), tmp_path)
        container.gang_slots = frozenset({0, slot})
        confinement.confine(container, Cores())
    worker, app_master = asked
    assert worker == GroupLimits(cpus=2.0, memory_bytes=4 << 30, processes=4096, closed_devices=("c 195:2",))
    assert app_master == GroupLimits()


@dataclass(frozen=True)
class _Recorded(NoGroups):
    """Control groups that keep what is asked of them."""

    asked: list[GroupLimits] = field(default_factory=list)

    def make(self, name: str, limits: GroupLimits) -> ControlGroup:
        self.asked.append(limits)
        return NoGroups.make(self, name, limits)


@pytest.mark.parametrize("record", [None, {}, {"kind": "v2", "folders": {}}, {"kind": "v1", "folders": 3}])
def test_a_record_without_a_readable_group_gives_no_group(record: dict[str, Any] | None) -> None:
    assert record_of(of_record(record)) is None
