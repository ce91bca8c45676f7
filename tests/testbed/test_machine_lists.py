"""Lists of machines as traces bring them."""

from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_testbed.spec.cluster_file import read_cluster
from eunomia_testbed.spec.machine_lists import parse_machine_list

PHILLY = "machineId, number of GPUs, single GPU mem\nm0,2, 12GB\nm1,8, 24GB\n"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def list_of(text: str) -> InputError:
    with pytest.raises(InputError) as raised:
        parse_machine_list(text, place="machines.csv")
    return raised.value


def test_the_list_of_philly_names_machines_gpus_and_the_memory_of_one(tmp_path: Path) -> None:
    (tmp_path / "cluster_machine_list").write_text(PHILLY)
    cluster = read_cluster(tmp_path / "cluster_machine_list").cluster
    assert [(machine.name, machine.gpus) for machine in cluster.machines] == [("m0", 2), ("m1", 8)]
    assert cluster.gpu_types == ("GPU-12GB", "GPU-24GB")


def test_a_node_list_gives_types_cpus_and_memory() -> None:
    read = parse_machine_list("sn,cpu_milli,memory_mib,gpu,model\r\nn1,64000,262144,2,P100\r\n", place="nodes.csv")
    (machine,) = read.cluster.machines
    assert (machine.gpu_type, machine.cpus, machine.memory_gib) == ("P100", 64.0, 256.0)


def test_machines_without_gpus_are_left_out_and_listed_with_their_line() -> None:
    read = parse_machine_list(PHILLY + "\nm2,0, 24GB\n", place="machines.csv")
    assert read.cluster.gpus == 10
    assert [str(error) for error in read.left_out] == [
        'a machine must have at least 1 GPU, but got 0 ("m2") (machines.csv, line 5)'
    ]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("m0,4, 12GB\n", 'machine names must be unique, but got "m0", as in line 2 (machines.csv, line 4)'),
        ("m2,-1, 12GB\n", 'GPUs of a machine must be a number from 0 to 1024, but got "-1" (machines.csv, line 4)'),
        ("m2,nan, 12GB\n", 'GPUs of a machine must be a number from 0 to 1024, but got "nan" (machines.csv, line 4)'),
        ("m2,1.5, 12GB\n", 'GPUs of a machine must be a whole number, but got "1.5" (machines.csv, line 4)'),
        ("m2,4\n", "a row must have 3 fields, but got 2 (machines.csv, line 4)"),
        (",4, 12GB\n", "a machine must have a name, but got nothing (machines.csv, line 4)"),
    ],
)
def test_an_error_names_its_line(rows: str, said: str) -> None:
    assert str(list_of(PHILLY + rows)) == said


def test_all_errors_of_a_machine_list_are_reported_together() -> None:
    assert str(list_of(PHILLY + "m0,4, 12GB\nm2,x, 12GB\n")).count("\n") == 1


def test_a_list_without_gpus_is_refused_as_a_cluster() -> None:
    said = "a list of machines must hold at least one with GPUs, but got none (machines.csv)"
    assert str(list_of("machineId, number of GPUs\n")) == said
    assert str(list_of("machineId, number of GPUs\nm1,0\n")) == said


def test_another_kind_of_table_is_refused_as_a_list_of_machines() -> None:
    assert "must have columns for names and GPUs" in str(list_of("vc,node num\na,1\n"))


@pytest.mark.parametrize(
    ("name", "gpus", "machines", "left_out"),
    [
        ("philly/machines/cluster_machine_list", 2490, 552, 0),
        ("philly/machines/revised_machine_list.csv", 3205, 539, 13),
        ("alibaba_openb_v2023/openb_node_list_gpu_node.csv", 6212, 1213, 0),
    ],
)
def test_public_machine_lists_have_the_expected_gpus_and_machines(
    name: str, gpus: int, machines: int, left_out: int
) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"../shared/data/{name} is not here: it is public data, kept outside the project")
    read = read_cluster(DATA / name)
    assert (read.cluster.gpus, len(read.cluster.machines), len(read.left_out)) == (gpus, machines, left_out)
