"""Iteration times and slowdowns from logs with warm-up, pauses, resizes and resumes."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia.units import Locality
from eunomia_appmaster.profiler import (
    STEP_SECONDS_TAG,
    LogFolder,
    Rate,
    RateBasis,
    Slowdown,
    Trim,
    measure_rates,
    slowdown_by_locality,
    slowdowns,
)

MACHINE, RACK, CLUSTER = Locality.MACHINE, Locality.RACK, Locality.CLUSTER


def log(
    folder: Path,
    incarnation: int,
    seconds: list[float],
    *,
    first: int = 0,
    every: int = 1,
    start: float = 1000.0,
    step_seconds: list[float] | None = None,
) -> None:
    """Write a log whose steps took ``seconds`` by their time stamps, and maybe logged step times."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), filename_suffix=f".r{incarnation}") as writer:
        now = start
        for i, taken in enumerate(seconds):
            now += taken
            if i % every == 0:
                writer.add_scalar("loss", 1.0, first + i, walltime=now)
            if step_seconds is not None:
                writer.add_scalar(STEP_SECONDS_TAG, step_seconds[i], first + i, walltime=now)
        writer.add_scalar("eval", 1.0, first, walltime=now)


def polled(folder: Path) -> LogFolder:
    logs = LogFolder(folder)
    logs.poll()
    return logs


def rate(gpus: int, locality: Locality, seconds: float) -> Rate:
    return Rate(gpus=gpus, locality=locality, seconds_per_iteration=seconds, samples=9, basis=RateBasis.STEP_SECONDS)


def test_logged_step_seconds_are_preferred_to_time_stamps(tmp_path: Path) -> None:
    log(tmp_path, 1, [0.001] * 40, step_seconds=[9.0, 5.0] + [0.25] * 37 + [8.0])
    (found,) = measure_rates(polled(tmp_path), {1: (2, MACHINE)})
    assert found == Rate(gpus=2, locality=MACHINE, seconds_per_iteration=0.25, samples=37, basis=RateBasis.STEP_SECONDS)
    assert found.iterations_per_second == 4.0


@pytest.mark.parametrize("logged", [True, False])
def test_points_logged_before_the_given_time_do_not_count(tmp_path: Path, logged: bool) -> None:
    seconds = [1.0] * 40 + [2.0] * 20
    log(tmp_path, 1, seconds, step_seconds=seconds if logged else None)
    (found,) = measure_rates(polled(tmp_path), {1: (1, MACHINE)}, since=1040.5)
    assert found.seconds_per_iteration == pytest.approx(2.0)
    assert measure_rates(polled(tmp_path), {1: (1, MACHINE)}, since=2000.0) == []


@pytest.mark.parametrize("every", [1, 5])
def test_rates_from_time_stamps_exclude_warm_up_and_pauses(tmp_path: Path, every: int) -> None:
    seconds = [30.0, 20.0] + [0.5] * 98
    seconds[50] = 600.0  # suspended in between
    log(tmp_path, 1, seconds, every=every)
    (found,) = measure_rates(polled(tmp_path), {1: (1, MACHINE)})
    assert found.basis is RateBasis.WALL_TIME
    assert found.seconds_per_iteration == pytest.approx(0.5)
    assert found.samples == 100 // every - 1 - 2 - 1  # differences less warm-up and the pause


def test_rates_are_separate_by_size_and_pooled_over_incarnations_of_one_size(tmp_path: Path) -> None:
    log(tmp_path, 1, [1.0] * 20)
    log(tmp_path, 2, [0.5] * 20, first=10, start=5000.0)  # undoes half of the first one's steps
    log(tmp_path, 3, [1.0] * 20, first=30, start=9000.0)
    log(tmp_path, 4, [0.7] * 20, first=50, start=20000.0)
    log(tmp_path, 5, [0.1] * 20, first=70, start=30000.0)  # of unknown size
    sizes = {1: (1, MACHINE), 2: (2, MACHINE), 3: (1, MACHINE), 4: (2, RACK), 9: (4, RACK)}
    found = measure_rates(polled(tmp_path), sizes)
    assert [(one.gpus, one.locality, one.samples) for one in found] == [
        (1, MACHINE, 34),
        (2, MACHINE, 17),
        (2, RACK, 17),
    ]
    assert [one.seconds_per_iteration for one in found] == pytest.approx([1.0, 0.5, 0.7])


def test_a_size_with_logged_step_seconds_uses_only_those(tmp_path: Path) -> None:
    log(tmp_path, 1, [1.0] * 20)
    log(tmp_path, 2, [1.0] * 20, first=20, step_seconds=[0.4] * 20)
    (found,) = measure_rates(polled(tmp_path), {1: (1, MACHINE), 2: (1, MACHINE)})
    assert (found.seconds_per_iteration, found.samples) == (pytest.approx(0.4), 18)


def test_rates_of_a_named_tag_need_enough_samples(tmp_path: Path) -> None:
    log(tmp_path, 1, [1.0] * 5)
    logs, sizes = polled(tmp_path), {1: (1, MACHINE)}
    assert measure_rates(logs, sizes) == []
    assert len(measure_rates(logs, sizes, trim=Trim(warm_up=1))) == 1
    assert measure_rates(logs, sizes, tag="eval", trim=Trim(warm_up=0, least=1)) == []
    assert measure_rates(logs, sizes, tag="unknown") == []
    assert measure_rates(LogFolder(tmp_path / "absent"), sizes) == []


def test_values_that_are_no_durations_do_not_count(tmp_path: Path) -> None:
    odd = [0.5, 0.5, math.nan, math.inf, 0.0, -1.0, 0.5, 0.5, 0.5]
    log(tmp_path, 1, [1.0] * 9, step_seconds=odd)
    (found,) = measure_rates(polled(tmp_path), {1: (1, MACHINE)})
    assert (found.seconds_per_iteration, found.samples) == (0.5, 3)


@pytest.mark.parametrize("bad", [{"warm_up": -1}, {"pause_factor": 1.0}, {"pause_factor": math.nan}, {"least": 0}])
def test_an_invalid_trim_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match="a trim must have"):
        Trim(**bad)


def test_slowdown_is_relative_to_the_machine_local_rate_of_the_same_count() -> None:
    rates = [rate(1, MACHINE, 1.0), rate(4, MACHINE, 0.3), rate(4, RACK, 0.36), rate(8, CLUSTER, 0.2)]
    assert slowdowns(rates) == [
        Slowdown(gpus=1, locality=MACHINE, slowdown=1.0),
        Slowdown(gpus=4, locality=MACHINE, slowdown=1.0),
        Slowdown(gpus=4, locality=RACK, slowdown=pytest.approx(1.2)),
        Slowdown(gpus=8, locality=CLUSTER, slowdown=pytest.approx(1.6)),  # 0.2 · 8 / 1.0
    ]
    assert [one.slowdown for one in slowdowns(rates, relative_to_machine=False)] == pytest.approx([1, 1.2, 1.44, 1.6])


def test_slowdown_without_a_reference_is_unknown() -> None:
    assert slowdowns([rate(4, RACK, 0.3)]) == []
    assert slowdown_by_locality([rate(4, RACK, 0.3)]) is None
    assert slowdown_by_locality([]) is None


def test_slowdowns_that_were_not_measured_have_the_assumed_values() -> None:
    rates = [rate(2, MACHINE, 0.5), rate(2, RACK, 0.75), rate(4, MACHINE, 0.25), rate(4, RACK, 0.3)]
    assert slowdown_by_locality(rates) == pytest.approx((1.0, 1.0, 1.35, 1.35)), "farther is not quicker"
    assert slowdown_by_locality([rate(1, MACHINE, 1.0)]) == (1.0, 1.0, 1.1, 1.3)
    quick = [rate(2, MACHINE, 0.5), rate(2, CLUSTER, 0.4)]
    assert slowdown_by_locality(quick) == (1.0, 1.0, 1.1, 1.0), "S is at least 1"


def test_neither_torch_nor_tensorboard_is_imported() -> None:
    program = (
        "import sys, eunomia_appmaster.profiler, eunomia_appmaster.app.checkpoints\n"
        "assert not {'torch', 'tensorboard', 'pandas', 'scipy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
