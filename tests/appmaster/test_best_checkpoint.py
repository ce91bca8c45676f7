"""The checkpoint that a job keeps for its best metric: the very state that was measured, over kills and resumes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.appmaster.training_lab import Job, Lab
from torch import nn

from eunomia_appmaster.app.checkpoints import Checkpoint
from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.explaining.best_jobs import best_checkpoint
from eunomia_appmaster.profiler.log_folder import LogFolder
from eunomia_appmaster.training.best import BestKeeper
from eunomia_appmaster.training.environment import Environment
from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.keeper import Keeper
from eunomia_appmaster.training.kept import KeptModel

SCRIPT = Path(__file__).parent / "training_digits.py"
METRIC = "val/accuracy"


@pytest.fixture(scope="module")
def lab() -> Any:
    return Lab.shared()


def logged(job: Any) -> dict[int, float]:
    folder = LogFolder(job.run_dir / "logs")
    folder.poll()
    series = folder.series(METRIC)
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


def accuracy(path: Path) -> float:
    """What a user's own code measures with the checkpoint's model."""
    from sklearn.datasets import load_digits  # takes 1.5 s, which all processes of a test run would pay

    images, labels = (torch.tensor(column) for column in load_digits(return_X_y=True))
    images, held_out = images.float() / 16, torch.arange(len(images)) % 5 == 0
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model.load_state_dict(torch.load(path, weights_only=False)["objects"][0])
    right = (model(images[held_out]).argmax(1) == labels[held_out]).sum()
    return int(right) / int(held_out.sum())


def checked(job: Any) -> Checkpoint:
    """The kept checkpoint, whose step, value and weights agree with the logs."""
    kept = best_checkpoint(job.run_dir)
    assert kept is not None
    assert kept.metric is not None
    assert [path.name for path in (job.run_dir / "best").glob("*/*.pt")] == [kept.path.name]
    assert logged(job)[kept.step] == pytest.approx(kept.metric, abs=1e-6)
    assert accuracy(kept.path) == pytest.approx(kept.metric, abs=1e-6)
    return kept


@pytest.mark.parametrize("workers", [1, 2])
def test_the_stored_state_is_the_one_that_was_measured(lab: Any, tmp_path: Path, workers: int) -> None:
    job = Job(lab, SCRIPT, tmp_path / "run", args=("--epochs", "6"), env={"EUNOMIA_METRIC": METRIC})
    assert job.run(workers=workers) == [0] * workers, job.output()
    kept = checked(job)
    assert kept.metric == pytest.approx(max(logged(job).values()), abs=1e-6)
    assert JobCheckpoints(job.run_dir / "checkpoints").steps()[-1] >= kept.step


def test_the_best_checkpoint_survives_a_suspension_and_only_a_better_one_replaces_it(lab: Any, tmp_path: Path) -> None:
    job = Job(lab, SCRIPT, tmp_path / "run", args=("--epochs", "6"), env={"EUNOMIA_METRIC": METRIC})
    assert job.run(EUNOMIA_STOP_AT=46) == [75], job.output()
    first = checked(job)
    assert first.step <= 46
    assert job.run() == [0], job.output()
    kept = checked(job)
    assert kept.metric is not None
    assert first.metric is not None
    assert kept.metric >= first.metric
    assert kept.metric == pytest.approx(max(logged(job).values()), abs=1e-6)


def test_without_a_metric_no_best_checkpoint_is_stored(lab: Any, tmp_path: Path) -> None:
    job = Job(lab, SCRIPT, tmp_path / "run", args=("--epochs", "1"))
    assert job.run() == [0], job.output()
    assert not (job.run_dir / "best").exists()


class Scene:
    """A keeper of one model in this process."""

    def __init__(self, folder: Path, mode: str = "max", **more: float) -> None:
        self.store = JobCheckpoints(folder / "best", keep=1)
        self.model = nn.Linear(1, 1)
        keeper = Keeper(Gang(Environment()), JobCheckpoints(folder / "checkpoints"))
        keeper.add(KeptModel(self.model))
        self.best = BestKeeper(keeper, self.store, METRIC, mode, **more)

    def log(self, step: int, value: float) -> None:
        with torch.no_grad():
            self.model.weight.fill_(float(step))
        self.best.note({METRIC: value}, step)

    def kept(self) -> tuple[int, float | None, float] | None:
        newest = self.store.latest()
        if newest is None:
            return None
        weights = torch.load(newest.path, weights_only=False)["objects"][0]["weight"]
        return newest.step, newest.metric, float(weights)


def test_a_metric_logged_at_every_step_is_stored_with_its_weights(tmp_path: Path) -> None:
    scene = Scene(tmp_path, free_seconds=0.0)
    for step in range(1, 200):
        scene.log(step, float(step))
    first = scene.kept()
    assert first is not None
    assert first[0] == first[1] == first[2], "step, metric and weights belong together"
    scene.best.write()
    last = scene.kept()
    assert last is not None
    assert last[0] == last[1] == last[2], "step, metric and weights belong together"
    assert first[0] <= last[0] <= 199


def test_with_mode_min_the_smallest_metric_is_best_and_non_finite_values_never_are(tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode="min")
    for step, value in enumerate([float("nan"), 2.0, float("-inf"), 3.0, float("inf")], start=1):
        scene.log(step, value)
        scene.best.write()
    assert scene.kept() == (2, 2.0, 2.0)
    again = Scene(tmp_path, mode="min")
    again.log(9, 2.5)
    again.best.write()
    assert again.kept() == (2, 2.0, 2.0), "a later start knows what is kept"
    again.log(10, 1.0)
    again.best.write()
    assert again.kept() == (10, 1.0, 10.0)


def test_a_disk_that_refuses_writes_does_not_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "best").write_text("in the way")
    scene.log(1, 1.0)
    assert "the best checkpoint was not written" in capsys.readouterr().err
