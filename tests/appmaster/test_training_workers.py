"""The training helper with several workers and micro-batches: the same training, whatever their number."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from eunomia_appmaster.training.batches import Division, divide
from hypothesis import given
from hypothesis import strategies as st

_spec = importlib.util.spec_from_file_location("training_lab", Path(__file__).parent / "training_lab.py")
lab_module = sys.modules.setdefault("training_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
Job, Lab = lab_module.Job, lab_module.Lab

DIGITS = Path(__file__).parent / "training_digits.py"
STEPS = 460  # 20 epochs of 23 batches, the last of each with 29 samples instead of 64
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def lab() -> Iterator[Any]:
    lab = Lab()
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def whole(lab: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """One worker that takes whole batches."""
    return trained(Job(lab, DIGITS, tmp_path_factory.mktemp("whole") / "run"), workers=1)


def trained(job: Any, *, workers: int, **env: object) -> dict[str, torch.Tensor]:
    codes = job.run(workers=workers, **env)
    assert codes == [0] * workers, "\n".join(job.output(rank) for rank in range(workers))
    final = torch.load(job.run_dir / "final.pt", weights_only=True)
    assert final["step"] == STEPS
    return final["model"]


def deviation(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("micro_batches", [1, 2, 3])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_times_micro_batches_make_the_same_steps(
    lab: Any, whole: dict[str, torch.Tensor], tmp_path: Path, workers: int, micro_batches: int
) -> None:
    job = Job(lab, DIGITS, tmp_path / "run", args=("--micro-batches", str(micro_batches)))
    found = deviation(whole, trained(job, workers=workers))
    print(workers, micro_batches, found)
    assert found < TOLERANCE
