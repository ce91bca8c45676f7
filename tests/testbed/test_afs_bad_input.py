"""Curves, jobs and clusters that AFS cannot use: an answer or an error that names the rule, the value and the place."""

from pathlib import Path

import polars as pl
import pytest

from eunomia.cli import run

MODEL = "Inception4Model256"
POINTS = tuple[tuple[int, object], ...]


def simulate(folder: Path, points: POINTS, *more: str, batch: object = 256) -> int:
    """Twelve jobs of 1, 2 and 4 GPUs under AFS-L, with these seconds per step by GPUs and this global batch."""
    header = "job_id,submit_s,submit_local,duration_s,num_gpus,vc,status,afs_model\n"
    rows = [f"j{row},{row * 60},x,{600 + 300 * row},{(1, 2, 4)[row % 3]},2869ce,Pass,{MODEL}\n" for row in range(12)]
    trace, curve = folder / "philly.csv", folder / "curve.csv"
    trace.write_text(header + "".join(rows))
    steps = "".join(f"{MODEL},{batch},{gpus},{seconds}\n" for gpus, seconds in points)
    curve.write_text("model,global_batch,num_gpus,step_time_s\n" + steps)
    given = {"trace": trace, "cluster": "2869ce", "told_models": "true", "scaling": curve}
    command = [
        "simulate",
        "--workload",
        "afs",
        "--speeds",
        str(curve),
        "--know",
        "sizes,types",
        "--no-report",
        "-j",
        "1",
    ]
    command += [part for key, value in given.items() for part in ("--set", f"afs.{key}={value}")]
    command += ["--cluster", "2x4 V100", "--policy", "afs", "--out", str(folder / "run")]
    return run([*command, *more])


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(((1, 2.0), (2, 1.2), (3, 1.5), (4, 1.8)), id="falls"),
        pytest.param(((1, 2.0), (2, 2.0), (3, 2.0), (4, 2.0)), id="flat"),
        pytest.param(((1, 2.0), (4, 0.8)), id="holes"),
        pytest.param(((1, 2.0),), id="one point"),
    ],
)
def test_every_job_ends_under_any_speedup_curve(tmp_path: Path, points: POINTS) -> None:
    assert simulate(tmp_path, points) == 0
    jobs = pl.concat([pl.read_parquet(path) for path in (tmp_path / "run").rglob("jobs.parquet")])
    assert jobs.height == 12
    assert jobs["finish_seconds"].null_count() == 0


def test_a_batch_size_that_the_number_of_gpus_does_not_divide_is_simulated(tmp_path: Path) -> None:
    """A batch of 3 on 2 and on 4 GPUs: workers take uneven parts of it, and the curve says how long a step takes."""
    assert simulate(tmp_path, ((1, 2.0), (2, 1.3), (4, 1.1)), "--set", "afs.elastic=true", batch=3) == 0
    jobs = pl.concat([pl.read_parquet(path) for path in (tmp_path / "run").rglob("jobs.parquet")])
    assert jobs["finish_seconds"].null_count() == 0


def test_sizes_beyond_the_peak_of_the_curve_are_never_used(tmp_path: Path) -> None:
    assert simulate(tmp_path, ((1, 2.0), (2, 1.2), (3, 1.5), (4, 1.8)), "--set", "afs.elastic=true") == 0
    leases = pl.concat([pl.read_parquet(path) for path in (tmp_path / "run").rglob("leases.parquet")])
    sizes = leases.group_by("job", "start_seconds").len()["len"]
    assert sizes.max() == 2


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (((1, 2.0), (2, 0)), 'step_time_s must be above 0, but got "0" (curve.csv, line 3)'),
        (((1, -2.0), (2, 1.0)), 'step_time_s must be above 0, but got "-2.0" (curve.csv, line 2)'),
        (((1, "nan"), (2, 1.0)), 'step_time_s must be above 0, but got "nan" (curve.csv, line 2)'),
        (((0, 2.0), (2, 1.0)), 'num_gpus must be at least 1, but got "0" (curve.csv, line 2)'),
        (((1, 2.0), (1, 1.0)), f"a model and num_gpus must stand once, but got {MODEL}, 1 (curve.csv, line 3)"),
    ],
)
def test_an_invalid_point_is_refused_before_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    points: POINTS,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert simulate(Path(), points) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--cluster", "2x0 V100"), "gpus must be at least 1, but got 0 (--cluster, m01)"),
        (("--cluster", "1x4 V100, 1x4 K80"), 'allocation "afs" needs one GPU type, but got K80 and V100; '),
        (
            ("--cluster", "2x4 V100, 1x2 V100", "--set", 'stages.refiners=["network_packing"]'),
            'refiner "network_packing" needs machines of one size, but got machines of 2 to 4 GPUs; ',
        ),
        (("--set", "plugins.afs.unit=0s"), 'unit must be greater than 0, but got "0s" (--set plugins.afs.unit)'),
        (
            ("--set", "plugins.afs.unit=2"),
            'unit must be a duration with a unit, such as "10m", but got 2 (--set plugins.afs.unit)',
        ),
        (
            ("--set", "stages.valuation=slaq"),
            'allocation "afs" reads seconds left by size, but valuation "slaq" gives reductions of loss by size',
        ),
    ],
)
def test_curves_that_do_not_suit_the_trace_are_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], message: str
) -> None:
    assert simulate(tmp_path, ((1, 2.0), (2, 1.2)), *given) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
