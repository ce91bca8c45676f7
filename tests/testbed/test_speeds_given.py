"""Speeds that are given with ``--speeds``: sizes without one, and what policies know of them."""

from pathlib import Path

import polars as pl
import pytest

from eunomia.cli import run

SAYS = "policies do not know the speeds of --speeds by size: --know sizes lets them know these"


def simulate(folder: Path, least: int, *more: str, cluster: str = "1x8 V100", policy: str = "max_min") -> int:
    """The exit code of two jobs of up to 8 GPUs, of a model whose speed is known from 4 GPUs on."""
    jobs = "".join(f"j{row},0,100,{least},8,m\n" for row in range(2))
    (folder / "jobs.csv").write_text("job,arrival_seconds,iterations,least_gpus,most_gpus,model\n" + jobs)
    (folder / "curves.csv").write_text("model,global_batch,num_gpus,step_time_s\nm,64,4,1.0\nm,64,8,0.6\n")
    command = ["simulate", str(folder / "jobs.csv"), "--speeds", str(folder / "curves.csv"), "--cluster", cluster]
    return run([*command, "--policy", policy, "-j", "1", "--out", str(folder / "run"), "--overwrite", *more])


@pytest.mark.parametrize("know", ["declared", "sizes"])
def test_a_minimum_gang_without_a_speed_is_refused_before_the_first_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], know: str
) -> None:
    assert simulate(tmp_path, 1, "--know", know) == 2
    rule = "a job's smallest gang (least_gpus) must be a size at which its model has a speed in --speeds"
    error = capsys.readouterr().err
    assert f'{rule}, but got 1; "m" has a speed on V100 from 4 GPUs on (jobs.csv, job j0/0)' in error
    assert not (tmp_path / "run").exists()


def test_gangs_run_from_the_smallest_size_with_a_known_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(tmp_path, 4, "--strict", "--no-report") == 0
    assert "not used" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("know", "says"), [("declared", SAYS), ("measured", "know only by measurement"), ("sizes", "")]
)
def test_screen_and_page_say_that_policies_do_not_know_the_speeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], know: str, says: str
) -> None:
    assert simulate(tmp_path, 4, "--know", know) == 0
    screen, page = capsys.readouterr().err, (tmp_path / "run" / "report.html").read_text()
    assert says in screen
    assert says in page
    assert ("the speeds of --speeds" in screen) == ("the speeds of --speeds" in page) == bool(says)


def test_a_warning_suggests_speeds_by_type_if_the_cluster_has_several_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(tmp_path, 8, "--no-report", cluster="1x8 V100, 1x8 P100") == 0
    assert "by GPU type: --know types lets them know these" in capsys.readouterr().err


def test_the_screen_and_the_page_count_probes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probing = ("--set", "stages.elasticity=throughput", "--set", "plugins.throughput.probe=true")
    assert simulate(tmp_path, 4, "--know", "measured", *probing, policy="fifo", cluster="1x8 V100, 1x8 V100") == 0
    probes = pl.read_csv(tmp_path / "run" / "summary.csv")["probes"].sum()
    assert probes > 0
    said = f"fifo: {probes} probes in all, {probes / 2:.1f} a job, each with two restarts or two resizes"
    assert said in capsys.readouterr().out
    assert ("1 probe" if probes == 1 else f"{probes} probes") in (tmp_path / "run" / "report.html").read_text()


def test_the_screen_names_machines_and_why_apps_did_not_finish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(tmp_path, 4, "--until", "10s", "--no-report", cluster="8 V100") == 0
    said = capsys.readouterr()
    assert "; 8 slots on 1 machine\n" in said.err
    assert "2 of 2 apps did not finish; --until 10s cut the run off" in said.out


def test_a_file_of_kind_profiles_is_refused_with_the_right_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kind.toml"
    file.write_text('kind = "m"\n[[point]]\ngpus = 4\ngpu_type = "V100"\nlocality = "machine"\nrate = 1.0\n')
    assert simulate(tmp_path, 4, "--speeds", str(file)) == 2
    assert "a TOML file; rates of a kind are for eunomia profiles import" in capsys.readouterr().err
