"""What ``eunomia slurm up`` accepts, and the script of a job."""

import subprocess
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_engines.commands.slurm import UpFlags
from eunomia_engines.engine import EngineRefusedError
from eunomia_engines.requests import nodes_range
from eunomia_engines.slurm.asking import suitable, with_share
from eunomia_engines.slurm.programs import nodes_of
from eunomia_engines.slurm.request import Request, gpus_asked, node_job_name, time_option
from eunomia_engines.slurm.script import check_more, job_script, slurm_time

NODES = [
    nodes_of("gpu*|up|2-00:00:00|2|8|2000|idle|gpu:v100:4"),
    nodes_of("gpu*|up|2-00:00:00|1|16|4000|idle|gpu:a100:4"),
    nodes_of("cpu|up|infinite|10|64|1|idle|(null)"),
]


def request(**more: object) -> Request:
    """A request for two nodes of four GPUs."""
    given = {"least": 2, "most": 2, "seconds": 3600.0, "gres": "gpu:4", "python": "/opt/py/bin/python"}
    return Request(**(given | {"node_dir": Path("/var/tmp")} | more))


@pytest.mark.parametrize(("text", "bounds"), [("3", (3, 3)), ("2..8", (2, 8)), (" 1 ", (1, 1))])
def test_nodes_are_a_number_or_a_range(text: str, bounds: tuple[int, int]) -> None:
    assert nodes_range(text) == bounds


@pytest.mark.parametrize("text", ["", "0", "-1", "8..2", "0..2", "2-8", "2...8", "two", "1e9", "999999999"])
def test_other_numbers_of_nodes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--nodes must be a number from 1, or a range"):
        nodes_range(text)


@pytest.mark.parametrize(("text", "seconds"), [("24:00:00", 86400.0), ("1-12:00:00", 129600.0), ("36h", 129600.0)])
def test_a_time_has_the_form_of_slurm_or_a_unit(text: str, seconds: float) -> None:
    assert time_option(text) == seconds


@pytest.mark.parametrize("text", ["30", "0", "", "-5m", "10s", "soon", "inf"])
def test_a_time_without_a_unit_or_too_short_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--time must"):
        time_option(text)


@pytest.mark.parametrize(
    ("text", "gpus"), [("gpu:4", ("", 4)), ("gpu:a100:2", ("a100", 2)), ("gpu:h100_80gb:1", ("h100_80gb", 1))]
)
def test_gpus_are_asked_for_as_slurm_writes_them(text: str, gpus: tuple[str, int]) -> None:
    assert gpus_asked(text) == gpus


@pytest.mark.parametrize("text", ["gpu", "4", "gpu:0", "gpu:a100", "mps:100", "gpu:a100:4 --wrap=x", "gpu:4\n#SBATCH"])
def test_other_gres_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--gres must be gpu:TYPE:NUMBER"):
        gpus_asked(text)


def test_a_partition_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(EngineRefusedError, match=r'--partition must be one of cpu, gpu, but got "gpus"; did you mean'):
        suitable(request(partition="gpus"), NODES)


def test_gpus_that_no_node_has_are_refused_with_those_that_are() -> None:
    with pytest.raises(EngineRefusedError, match=r"2 nodes with gpu:v100:4; 1 node with gpu:a100:4"):
        suitable(request(gres="gpu:9"), NODES)
    with pytest.raises(EngineRefusedError, match="10 nodes with no GPUs"):
        suitable(request(partition="cpu"), NODES)


def test_a_time_beyond_the_limit_of_the_partition_is_refused() -> None:
    with pytest.raises(EngineRefusedError, match="at most the limit of partition gpu, 48 h, but got 72 h"):
        suitable(request(seconds=72 * 3600.0), NODES)


def test_a_node_gets_the_share_of_cpus_and_memory_that_its_gpus_are() -> None:
    whole = with_share(request(), suitable(request(), NODES))
    assert (whole.cpus, whole.memory_mib) == (8, 2000)
    half = request(gres="gpu:a100:2")
    assert (with_share(half, suitable(half, NODES)).cpus, with_share(half, NODES[1:2]).memory_mib) == (8, 2000)
    given = request(cpus=3)
    assert with_share(given, NODES[:1]).cpus == 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, r"must have GPUs \(--gres gpu:TYPE:NUMBER\) or CPU slots"),
        ({"gres": "gpu:4", "setup": Path("/no/env.sh")}, "--setup must name a file"),
        ({"cpu_slots": 2, "cpus_per_gpu": 4}, "--cpus-per-gpu must come with --gres"),
        ({"gres": "gpu:4", "more": ["--array=1-9"]}, "none that Eunomia sets"),
        ({"gres": "gpu:4", "more": ["rm -rf /"]}, "must be of the form --NAME"),
        ({"gres": "gpu:4", "more": ["--mail-user=a\n#SBATCH --array=1-9"]}, "must be of the form --NAME"),
    ],
)
def test_bad_flags_are_refused(flags: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        UpFlags(**({"nodes": "2", "time": "1h"} | flags)).request()


def test_further_options_of_sbatch_stand_in_the_script() -> None:
    check_more(("--mail-user=a@b.c", "--exclusive"))
    script = job_script(request(more=("--mail-user=a@b.c", "--exclusive")), Path("/s"))
    assert "#SBATCH --mail-user=a@b.c\n#SBATCH --exclusive\n" in script


def test_a_script_holds_no_token_and_is_valid_shell(tmp_path: Path) -> None:
    state = Path("/a state; touch x")
    script = job_script(request(setup=Path("/my env.sh")), state)
    assert "token" not in script.lower()
    path = tmp_path / "node.sh"
    path.write_text(script, encoding="utf-8")
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    assert f"--job-name={node_job_name(state)}" in script


def test_two_state_folders_have_jobs_of_different_names() -> None:
    assert node_job_name(Path("/a")) != node_job_name(Path("/b"))


@pytest.mark.parametrize(("seconds", "text"), [(60.0, "00:01:00"), (86399.9, "23:59:59"), (129600.0, "1-12:00:00")])
def test_a_time_is_written_as_slurm_reads_it(seconds: float, text: str) -> None:
    assert slurm_time(seconds) == text


def test_a_request_survives_its_file(tmp_path: Path) -> None:
    (tmp_path / "engine" / "slurm").mkdir(parents=True)
    made = request(more=("--exclusive",), cpus=8)
    made.save(tmp_path)
    assert Request.load(tmp_path) == made


def test_a_folder_without_a_request_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be one of `eunomia slurm up`"):
        Request.load(tmp_path)
    (tmp_path / "engine" / "slurm").mkdir(parents=True)
    (tmp_path / "engine" / "slurm" / "request.json").write_text('{"least": 0}')
    with pytest.raises(InputError, match="the request must be readable"):
        Request.load(tmp_path)
