from pathlib import Path

import numpy as np
import pytest

from eunomia import Cluster, Locality
from eunomia.errors import InputError, InputErrors
from eunomia_testbed.spec.cluster_file import (
    ClusterFile,
    cluster_toml,
    expand_hosts,
    load_cluster,
    parse_cluster,
    read_cluster,
)

EXAMPLE = """
bandwidth = { island = "300GB/s", machine = "32GB/s", rack = "12GB/s", cluster = "3GB/s" }
machines = [
  { names = "a[01-16]", rack = "r1", gpus = "8xV100", island = 4, cpus = 96, memory = "768GiB" },
  { names = "b[1-6]",   rack = "r2", gpus = "4xP100", cpus = 32, memory = "256GiB" },
]
"""


def test_the_example_cluster_file_is_parsed() -> None:
    read = parse_cluster(EXAMPLE, place="site.toml")
    cluster = read.cluster
    assert (cluster.gpus, cluster.gpu_types, cluster.racks) == (152, ("P100", "V100"), ("r1", "r2"))
    assert cluster.machines[0].name == "a01"
    assert cluster.machines[-1].name == "b6"
    assert cluster.locality(np.array([0, 4])) is Locality.MACHINE
    assert cluster.locality(np.array([0, 3])) is Locality.ISLAND
    assert cluster.locality(np.array([0, 8])) is Locality.RACK
    assert cluster.locality(np.array([0, 128])) is Locality.CLUSTER
    assert read.bandwidth_gib[Locality.RACK] == pytest.approx(12e9 / 1024**3)
    assert cluster.machine_memory_gib[-1] == 256.0


def test_a_cluster_file_is_written_and_parsed_back_to_the_same_cluster() -> None:
    read = parse_cluster(EXAMPLE, place="site.toml")
    again = parse_cluster(cluster_toml(read), place="again.toml")
    assert again == ClusterFile(cluster=again.cluster, bandwidth_gib=read.bandwidth_gib)
    assert again.cluster.machines == read.cluster.machines


def test_a_cluster_file_and_a_short_form_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(EXAMPLE)
    assert load_cluster(str(tmp_path / "site.toml")).gpus == 152
    assert load_cluster("2x4 V100, 1x2 P100").gpus == 10
    with pytest.raises(InputError, match=r"a cluster file must exist, but got \"nowhere.toml\" \(--cluster\)"):
        load_cluster("nowhere.toml")


def test_machines_given_by_count_get_generated_names() -> None:
    text = 'machines = [{ count = 2, gpus = "4xV100" }, { count = 1, gpus = "8xA100" }]'
    cluster = parse_cluster(text, place="c.toml").cluster
    assert [machine.name for machine in cluster.machines] == ["m01", "m02", "m03"]
    assert np.isnan(cluster.machine_cpus).all()


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a[01-03,7],b", ["a01", "a02", "a03", "a7", "b"]),
        ("n[9-11]-gpu", ["n9-gpu", "n10-gpu", "n11-gpu"]),
        ("box7", ["box7"]),
    ],
)
def test_host_lists_are_expanded_like_in_slurm(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", "a[3-1]", "a[0-99999999]", "a[b-c]", "a[1", "a,,b"])
def test_bad_host_lists_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="names"):
        expand_hosts(text)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ('names = "a", gpus = "8V100"', 'gpus must be written like "8xV100", but got "8V100"'),
        ('names = "a", gpus = "0xV100"', 'gpus must be written like "8xV100"'),
        ('names = "a", gpus = "999999999xV100"', "a machine must have at most 1024 GPUs"),
        ('names = "a[0-999999]", gpus = "1024xV100"', "a cluster must have at most 1000000 GPUs"),
        ('count = 1000000000, gpus = "8xV100"', "count must be a whole number between 1 and"),
        ('count = -2, gpus = "8xV100"', "count must be a whole number between 1 and"),
        ('names = "a", gpus = "8xV100", cpus = -4', "cpus must be a number between"),
        ('names = "a", gpus = "8xV100", cpus = nan', "cpus must be a number between"),
        ('names = "a", gpus = "8xV100", island = 9', "island must be a whole number between 1 and 8, but got 9"),
        ('names = "a", gpus = "8xV100", memory = "768"', "memory must be a positive amount of memory"),
        ('names = "a", gpus = "8xV100", rak = "r1"', 'but got "rak"; did you mean "rack"?'),
        ('names = "a", count = 2, gpus = "8xV100"', "must have either names or count"),
        ('gpus = "8xV100"', "must have either names or count"),
        ('names = "a,a", gpus = "8xV100"', 'machine names must be unique, but got "a" twice'),
        ('names = "a", gpus = "8xV100", rack = 3', "rack must be a name"),
    ],
)
def test_invalid_machines_are_refused_with_file_and_key(row: str, error: str) -> None:
    with pytest.raises(InputErrors) as caught:
        parse_cluster(f"machines = [{{ {row} }}]", place="c.toml")
    assert error in str(caught.value)
    assert "(c.toml, machines" in str(caught.value)


def test_all_errors_of_a_file_are_reported_together() -> None:
    text = """
    speed = 1
    bandwidth = { island = "fast", rak = "1GB/s" }
    machines = [{ names = "a", gpus = "x" }, { names = "b", gpus = "2xV100", cpus = 0 }]
    """
    with pytest.raises(InputErrors) as caught:
        parse_cluster(text, place="c.toml")
    places = [error.place for error in caught.value.errors]
    assert places == [
        "c.toml",
        "c.toml, bandwidth.island",
        "c.toml, bandwidth",
        "c.toml, machines[0].gpus",
        "c.toml, machines[1].cpus",
    ]


@pytest.mark.parametrize("text", ["machines = []", "machines = 3", "", "machines = [1]", "machines = ["])
def test_a_file_without_machines_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"\(c.toml"):
        parse_cluster(text, place="c.toml")


@pytest.mark.parametrize(
    "text", ["", "V100", "4x V100", "0x8 V100", "4x0 V100", "999999999x999999999 V100", "4x8 V100 -1cpu"]
)
def test_a_bad_short_form_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"\(--cluster"):
        Cluster.parse(text)


def test_a_short_form_can_give_each_machine_cpus_and_memory() -> None:
    cluster = read_cluster("4x8 V100 24cpu 500GB, 2x4 P100").cluster
    assert cluster.machine_cpus[:4].tolist() == [24.0] * 4
    assert np.isnan(cluster.machine_cpus[4:]).all()
    assert cluster.capacity.tolist() == [8, 32]
    with pytest.raises(ValueError, match="read-only"):
        cluster.capacity[0] = 0
