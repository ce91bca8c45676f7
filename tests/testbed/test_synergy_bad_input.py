"""What Synergy cannot work with is refused with the rule, the value and the place, and nothing is left behind."""

from pathlib import Path

import pytest

from eunomia.cli import run

PROFILES = "variant,model,gpus,cpus_per_gpu,mem_gb_per_gpu,rel_tput\n"
MODELS = "variant,model,gpus,demand_cpu,demand_mem_gb,batch,iter_time_base_s\ncpu_per_gpu=3,m,1,3,60,32,0.5\n"
TRACE = "job,model,arrival_seconds,most_gpus,iterations\n0,m,0,1,100\n1,m,5,2,100\n"
GRID = {(1, 20): 0.5, (1, 60): 0.6, (3, 20): 0.9, (3, 60): 1.0}
CLUSTER = "1x8 V100 24cpu 500GB"


def profiles(folder: Path, grid: dict[tuple[int, int], float]) -> Path:
    """A folder of profiles with one model."""
    rows = (f"cpu_per_gpu=3,m,1,{cpus},{memory},{rate}\n" for (cpus, memory), rate in grid.items())
    (folder / "profiles.csv").write_text(PROFILES + "".join(rows))
    (folder / "models.csv").write_text(MODELS)
    return folder


def simulated(folder: Path, *, cluster: str = CLUSTER, speeds: bool = True, policy: str = "synergy") -> int:
    trace, out = folder / "trace.csv", folder / "out"
    trace.write_text(TRACE)
    given = ["--speeds", str(folder)] if speeds else []
    code = run(
        [
            "simulate",
            str(trace),
            "--cluster",
            cluster,
            *given,
            "--know",
            "amounts",
            "--policy",
            policy,
            "--out",
            str(out),
        ]
    )
    assert (code == 0) is out.exists()
    return code


def test_valid_profiles_are_simulated(tmp_path: Path) -> None:
    profiles(tmp_path, GRID)
    assert simulated(tmp_path) == 0


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (
            {point: rate for point, rate in GRID.items() if point != (3, 60)},
            "the grid of m must have every memory at every number of CPUs, but got no 3 CPUs with 60 GB",
        ),
        (GRID | {(3, 20): 0.0}, "a rate in the grid of m must be above 0, but got 0 at 3 CPUs and 20 GB"),
        (
            GRID | {(3, 60): 0.55},
            "more CPUs must not make m slower, but got 0.55 after 0.6 beyond 1 CPUs and 60 GB",
        ),
        (
            GRID | {(1, 60): 0.4},
            "more memory must not make m slower, but got 0.4 after 0.5 beyond 1 CPUs and 20 GB",
        ),
    ],
    ids=["hole", "zero", "falls with CPUs", "falls with memory"],
)
def test_an_invalid_matrix_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], grid: dict[tuple[int, int], float], message: str
) -> None:
    profiles(tmp_path, grid)
    assert simulated(tmp_path) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["synergy", "synergy_greedy", "synergy_tetris"])
@pytest.mark.parametrize(("cluster", "what"), [("1x8 V100", "cpus"), ("1x8 V100 24cpu", "memory")])
def test_a_cluster_must_give_the_cpus_and_memory_of_its_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, cluster: str, what: str
) -> None:
    profiles(tmp_path, GRID)
    assert simulated(tmp_path, cluster=cluster, policy=policy) == 2
    rule = f'{what} must be given for refiner "sensitivity", but got machine "m01" has none'
    assert rule in capsys.readouterr().err


def test_memory_without_a_unit_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiles(tmp_path, GRID)
    assert simulated(tmp_path, cluster="1x8 V100 24cpu 500") == 2
    assert 'a cluster must be written like "4x8 V100" or "4x8 V100 24cpu 500GB' in capsys.readouterr().err


def test_known_amounts_need_speeds_by_cpus_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE.replace("iterations\n", "iterations,seconds_per_iteration\n").replace(",100\n", ",100,1\n"))
    given = ["--cluster", CLUSTER, "--know", "amounts", "--policy", "synergy", "--out", str(tmp_path / "out")]
    assert run(["simulate", str(trace), *given]) == 2
    assert "rates by CPUs and memory must be in --speeds where app masters know amounts" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
