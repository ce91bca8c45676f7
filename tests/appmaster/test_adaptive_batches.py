"""Batch sizes by the rules of Accordion and the gradient noise scale, with real training of small networks."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster.training_lab import Lab, free_port

from eunomia.errors import InputError
from eunomia_appmaster import training

HERE = Path(__file__).parent
SCRIPT = HERE / "adaptive_script.py"
EXAMPLE = HERE.parent.parent / "docs" / "examples" / "adapting" / "digits.py"
SUSPENDED = 75


def trained(folder: Path, rule: str, epochs: int, *, leaves_at: int = 0, workers: int = 1) -> dict[str, Any]:
    """Run the script until its work is done; what it printed at last."""
    lab, port = Lab.shared(), str(free_port())

    def codes(leaves: int) -> list[int]:
        shared = {"WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        words = (rule, str(folder / "run"), str(epochs), str(leaves))
        pids = []
        for rank in range(workers):
            env = {"RANK": str(rank), "LOCAL_RANK": str(rank), **shared} if workers > 1 else {}
            pids.append(lab.start(SCRIPT, *words, env=env, cwd=folder, output=folder / f"output.{rank}"))
        return [lab.wait(pid) for pid in pids]

    if leaves_at:
        assert codes(leaves_at) == [SUSPENDED] * workers, (folder / "output.0").read_text()
    assert codes(0) == [0] * workers, (folder / "output.0").read_text()
    lines = (folder / "output.0").read_text().splitlines()
    found: dict[str, Any] = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
    return found


def test_accordion_switches_between_two_batch_sizes_and_scales_the_learning_rate(tmp_path: Path) -> None:
    found = trained(tmp_path, "accordion", 12)
    assert set(found["sizes"]) == {8, 32}
    assert found["sizes"][:4] == [8] * 4, "two checks are needed to see that the norm is steady"
    changes = [epoch for epoch in range(1, 12) if found["sizes"][epoch] != found["sizes"][epoch - 1]]
    assert all(epoch % 2 == 0 for epoch in changes)
    assert found["rates"] == pytest.approx([0.02 * size / 8 for size in found["sizes"]])
    assert found["step"] == sum(512 // size for size in found["sizes"])


def test_accordion_treats_a_lowered_learning_rate_as_a_critical_regime(tmp_path: Path) -> None:
    found = trained(tmp_path, "accordion_lowered", 9)
    assert found["sizes"] == [8, 8, 32, 32, 32, 32, 8, 32, 32]
    assert found["rates"][5:8] == pytest.approx([0.08, 0.002, 0.008])


def test_the_noise_scale_only_doubles_the_batch_size_up_to_the_limit(tmp_path: Path) -> None:
    sizes = trained(tmp_path, "gns", 10)["sizes"]
    assert sizes[0] == 8
    assert sizes[-1] == 64
    assert all(later in (now, 2 * now) for now, later in itertools.pairwise(sizes))


@pytest.mark.parametrize("rule", ["accordion", pytest.param("gns", marks=pytest.mark.slow)])
def test_a_run_suspended_within_an_epoch_ends_like_one_without_a_suspension(rule: str, tmp_path: Path) -> None:
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    whole = trained(tmp_path / "whole", rule, 8)
    broken = trained(tmp_path / "broken", rule, 8, leaves_at=whole["step"] // 2 + 5)
    assert broken["sizes"] == whole["sizes"][-len(broken["sizes"]) :]
    assert 0 < len(broken["sizes"]) < 8
    assert broken["step"] == whole["step"]
    assert broken["weights"] == whole["weights"]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_noise_scale_equals_that_computed_from_the_gradients_of_single_samples(
    workers: int, tmp_path: Path
) -> None:
    """The network stays as it is (a learning rate of 0), so the scale can be computed sample by sample."""
    found = trained(tmp_path, "gns_fixed", 20, workers=workers)
    assert found["noise_scale"] == pytest.approx(found["exact"], rel=0.35)
    assert max(found["sizes"]) in (64, 128), "the scale is near 138"


@pytest.mark.slow
def test_the_example_reaches_the_accuracy_of_a_static_batch_size(tmp_path: Path) -> None:
    ends = {}
    for rule in ("static", "accordion", "gns"):
        command = [sys.executable, str(EXAMPLE), "--rule", rule, "--epochs", "30"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stderr
        words = ended.stdout.splitlines()[-1].replace(",", "").split()
        ends[rule] = int(words[4]), int(words[6]), float(words[8])
    assert {rule: size for rule, (size, _, _) in ends.items()} == {"static": 16, "accordion": 128, "gns": 128}
    assert ends["gns"][1] < ends["accordion"][1] < ends["static"][1]
    assert min(accuracy for _, _, accuracy in ends.values()) > 0.93


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: training.Accordion(small=8, large=8), "small and large must be whole numbers"),
        (lambda: training.Accordion(small=0, large=8), "small at least 1"),
        (lambda: training.Accordion(small=8.5, large=16), "whole numbers of samples"),  # type: ignore[arg-type]
        (lambda: training.Accordion(small=8, large=16, every=0), "every must be a whole number of epochs above 0"),
        (lambda: training.Accordion(small=8, large=16, change=float("nan")), "change must be a fraction above 0"),
        (lambda: training.Gns(small=1, large=8), "small at least 2"),
        (lambda: training.Gns(small=2, large=8, smoothing=1.0), "smoothing must be at least 0 and below 1"),
    ],
)
def test_invalid_options_of_the_rules_are_refused(make: Any, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        make()


def test_batch_sizes_under_gns_are_powers_of_two_times_the_first() -> None:
    assert training.Gns(small=8, large=64).sizes == (8, 16, 32, 64)
    assert training.Gns(small=8, large=63).sizes == (8, 16, 32)
    assert training.Gns(small=8, large=9).sizes == (8,)
