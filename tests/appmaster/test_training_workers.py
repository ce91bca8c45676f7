"""The training helper with several workers and micro-batches: the same training, whatever their number."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.appmaster.training_lab import Job, Lab

from eunomia_appmaster.training.batches import Division, divide

DIGITS = Path(__file__).parent / "training_digits.py"
STEPS = 460  # 20 epochs of 23 batches, the last of each with 29 samples instead of 64
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def lab() -> Any:
    return Lab.shared()


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


MORE_DIVISIONS = ((1, 1), (1, 2), (2, 2), (2, 3), (3, 1), (3, 3))
"""Pairs of workers and micro batches beside the three that cover each number once."""


@pytest.mark.parametrize(
    ("workers", "micro_batches"),
    [(1, 3), (2, 1), (3, 2), *(pytest.param(*one, marks=pytest.mark.slow) for one in MORE_DIVISIONS)],
)
def test_any_number_of_workers_and_micro_batches_gives_the_same_steps(
    lab: Any, whole: dict[str, torch.Tensor], tmp_path: Path, workers: int, micro_batches: int
) -> None:
    job = Job(lab, DIGITS, tmp_path / "run", args=("--micro-batches", str(micro_batches)))
    assert deviation(whole, trained(job, workers=workers)) < TOLERANCE


def test_a_run_resized_between_incarnations_gives_the_same_steps(
    lab: Any, whole: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    job = Job(lab, DIGITS, tmp_path / "run", args=("--micro-batch-size", "16"))
    assert job.run(workers=1, EUNOMIA_STOP_AT=100) == [75]
    assert job.run(workers=3, EUNOMIA_STOP_AT=253) == [75] * 3  # 253 = 11 epochs
    assert job.said("saved") == [{"step": 253}]
    assert deviation(whole, trained(job, workers=2)) < TOLERANCE


@pytest.mark.parametrize("workers", [2, 3])
def test_a_last_batch_smaller_than_the_gang_is_weighted_as_with_one_worker(
    lab: Any, tmp_path: Path, workers: int
) -> None:
    # 5 batches an epoch, the last of one sample; gradients are cleared after the step, which micro-batches must bear.
    args = ("--samples", "33", "--batch-size", "8", "--epochs", "3", "--clear-after")
    alone = Job(lab, DIGITS, tmp_path / "alone", args=args)
    assert alone.run() == [0]
    gang = Job(lab, DIGITS, tmp_path / "gang", args=(*args, "--micro-batches", "3"))
    assert gang.run(workers=workers) == [0] * workers, gang.output()
    finals = [torch.load(job.run_dir / "final.pt", weights_only=True) for job in (alone, gang)]
    assert finals[0]["step"] == finals[1]["step"] == 15
    assert deviation(finals[0]["model"], finals[1]["model"]) < TOLERANCE


def test_the_logged_value_of_micro_batches_is_their_mean(lab: Any, tmp_path: Path) -> None:
    args = ("--samples", "33", "--batch-size", "8", "--epochs", "2")
    jobs = [
        Job(lab, DIGITS, tmp_path / "whole", args=args),
        Job(lab, DIGITS, tmp_path / "cut", args=(*args, "--micro-batch-size", "3")),
    ]
    losses = []
    for job in jobs:
        assert job.run() == [0]
        events = EventAccumulator(str(job.run_dir / "logs")).Reload().Scalars("train/loss")
        assert [event.step for event in events] == list(range(1, 11))
        losses.append([event.value for event in events])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_an_evaluation_by_only_one_of_several_workers_is_an_error(lab: Any, tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    text = DIGITS.read_text()
    assert "    with torch.no_grad():\n" in text
    script.write_text(
        text.replace("    with torch.no_grad():\n", "    right = 0\n    with torch.no_grad():\n      if run.is_main:\n")
    )
    job = Job(lab, script, tmp_path / "run", args=("--epochs", "3"))
    assert job.run(workers=2) == [1, 1]
    assert "all workers must run the same batches and evaluations" in job.output(0)


divisions = st.builds(
    Division,
    workers=st.integers(1, 7),
    micro_batches=st.integers(1, 5),
    micro_batch_size=st.none() | st.integers(1, 6),
)


@given(batch=st.lists(st.integers(), min_size=1, max_size=40), division=divisions)
def test_a_divided_batch_is_complete_and_correctly_weighted(batch: list[int], division: Division) -> None:
    by_rank = [divide(batch, replace(division, rank=rank)) for rank in range(division.workers)]
    counted = [index for pieces in by_rank for piece in pieces for index in piece.indices[: piece.samples]]
    assert counted == batch
    assert len({len(pieces) for pieces in by_rank}) == 1
    for pieces in by_rank:
        assert [piece.first for piece in pieces] == [True] + [False] * (len(pieces) - 1)
        assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    every = [piece for pieces in by_rank for piece in pieces]
    # DDP divides by the number of workers.
    assert sum(piece.weight for piece in every) == pytest.approx(division.workers)
    assert all(piece.indices for piece in every)
    assert all(piece.samples <= (division.micro_batch_size or len(batch)) for piece in every)
    assert by_rank[0][0].samples > 0
