"""What a machine has to lease, read from files laid out as in /proc and /sys, and from what NVML says."""

from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.local_machine import FoundGpu, LocalMachine, LocalSlot, detect, group, short_type, visible

A100 = [FoundGpu(gpu_type="A100", uuid=f"GPU-{name}-1", island=0) for name in ("aa", "ab", "cc")]


def tree(root: Path, **files: str) -> Path:
    """Lay out files; ``__`` stands for a slash, ``_dot_`` for a dot."""
    files = {"proc__meminfo": "MemTotal:        8000000 kB\nMemFree: 1 kB\n", **files}
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_machine.os, "sched_getaffinity", lambda _pid: {0, 3})


@pytest.mark.usefixtures("two_cpus")
@pytest.mark.parametrize(
    ("files", "cpus", "gib"),
    [
        ({}, 2.0, 8000000 / 1024**2),
        (
            {
                "proc__self__cgroup": "0::/a/b\n",
                "sys__fs__cgroup__a__cpu_dot_max": "150000 100000\n",  # the tighter one stands above
                "sys__fs__cgroup__a__b__cpu_dot_max": "max 100000\n",
                "sys__fs__cgroup__a__memory_dot_max": "max\n",
                "sys__fs__cgroup__a__b__memory_dot_max": f"{2 * 1024**3}\n",
            },
            1.5,
            2.0,
        ),
        (
            {
                "proc__self__cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n3:pids:/\n",
                "sys__fs__cgroup__cpu__docker__x__cpu_dot_cfs_quota_us": "50000\n",
                "sys__fs__cgroup__cpu__docker__x__cpu_dot_cfs_period_us": "100000\n",
                "sys__fs__cgroup__cpu__cpu_dot_cfs_quota_us": "-1\n",
                "sys__fs__cgroup__cpu__cpu_dot_cfs_period_us": "100000\n",
                "sys__fs__cgroup__memory__docker__x__memory_dot_limit_in_bytes": f"{1024**3}\n",
                "sys__fs__cgroup__memory__memory_dot_limit_in_bytes": "9223372036854771712\n",
            },
            0.5,
            1.0,
        ),
    ],
    ids=["no limits", "version 2", "version 1"],
)
def test_cpus_and_memory_of_a_machine_are_limited_by_affinity_and_control_groups(
    tmp_path: Path, files: dict[str, str], cpus: float, gib: float
) -> None:
    machine = detect(use_gpus=False, root=tree(tmp_path, **files))
    assert machine.cpus == cpus
    assert machine.memory_gib == pytest.approx(gib)
    assert sum(slot.cpus for slot in machine.slots) == pytest.approx(cpus)
    assert sum(slot.memory_gib for slot in machine.slots) == pytest.approx(gib)


@pytest.mark.usefixtures("two_cpus")
def test_a_machine_without_gpus_has_cpu_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_machine.socket, "gethostname", lambda: "box7.example.org")
    machine = detect(use_gpus=False, root=tree(tmp_path))
    said = "local: box7, no GPU found, so 4 cpu slots of 0.5 CPUs each, 7.6 GiB in all (--slots N changes it)"
    assert machine.describe() == said
    assert [slot.index for slot in machine.slots] == [0, 1, 2, 3]
    assert {(slot.gpu_type, slot.uuid) for slot in machine.slots} == {("cpu", "")}
    assert "1 cpu slot of 2 CPUs each" in detect(1, use_gpus=False, root=tree(tmp_path)).describe()
    assert "2 cpu slots of 1 CPU each" in detect(2, use_gpus=False, root=tree(tmp_path)).describe()
    assert len(detect(7, use_gpus=False, root=tree(tmp_path)).slots) == 7


@pytest.mark.usefixtures("two_cpus")
def test_the_slots_are_the_gpus_in_cuda_visible_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_machine, "find_gpus", lambda: tuple(A100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    machine = detect(9, root=tree(tmp_path))
    assert [slot.uuid for slot in machine.slots] == ["GPU-cc-1", "GPU-aa-1"]
    assert [slot.cpus for slot in machine.slots] == [1.0, 1.0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert detect(3, root=tree(tmp_path)).slots[0].gpu_type == "cpu"


@pytest.mark.parametrize(
    ("variable", "left"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("0,7,1", [0]),  # the first unknown one ends the list
        ("GPU-cc,0", [2, 0]),
        ("GPU-a,0", []),  # names two
        ("1,1", [1]),
    ],
)
def test_cuda_visible_devices_is_parsed_like_cuda_does(variable: str | None, left: list[int]) -> None:
    assert list(visible(A100, variable)) == [A100[index] for index in left]


def test_parts_of_gpus_are_refused() -> None:
    with pytest.raises(InputError, match=r"must name whole GPUs.*but got MIG-1"):
        visible(A100, "MIG-1")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX2080Ti"),
        ("NVIDIA RTX A6000", "RTXA6000"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("", "gpu"),
    ],
)
def test_gpu_types_have_their_common_names(name: str, short: str) -> None:
    assert short_type(name) == short


@pytest.mark.parametrize(
    ("count", "linked", "islands"),
    [
        (0, [], []),
        (3, [], [0, 0, 0]),
        (4, [(0, 1), (2, 3)], [0, 0, 1, 1]),
        (4, [(1, 2), (2, 3), (0, 3)], [0, 0, 0, 0]),
        (4, [(0, 3)], [0, 1, 2, 0]),
    ],
)
def test_gpus_linked_by_nvlink_form_an_island(count: int, linked: list[tuple[int, int]], islands: list[int]) -> None:
    assert group(count, linked) == islands


def test_gpus_are_described_by_type_and_island() -> None:
    def machine(*types: str, islands: int = 1) -> str:
        slots = tuple(
            LocalSlot(index=index, gpu_type=name, uuid="", island=index % islands, cpus=1, memory_gib=1)
            for index, name in enumerate(types)
        )
        return LocalMachine(host="box7", slots=slots, cpus=32.0, memory_gib=240.0).describe()

    assert machine("A100", "A100") == "local: box7, 2xA100 in one island, 32 CPUs, 240 GiB"
    assert machine("V100", "V100", "T4", islands=2) == "local: box7, 2xV100 and 1xT4 in 2 islands, 32 CPUs, 240 GiB"


def test_the_number_of_slots_must_be_positive() -> None:
    with pytest.raises(InputError, match=r"slots must be from 1 to 65536, but got 0 \(--slots\)"):
        detect(0)


def test_cpus_memory_and_slots_of_the_current_machine_are_detected() -> None:
    machine = detect(2)
    assert machine.cpus > 0
    assert machine.memory_gib > 0
    assert len({slot.index for slot in machine.slots}) == len(machine.slots)
