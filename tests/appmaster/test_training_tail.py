"""A script that reads its loops' variables after them ends, however it is stopped, as the run that was not stopped."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.appmaster.training_lab import Job, Lab

SCRIPT = Path(__file__).parent / "training_plain_loop.py"
LEFT, DONE, KILLED = [75], [0], [-9]
EVERY_BOUNDARY = {"EUNOMIA_CHECKPOINT_EVERY_SECONDS": "0.0001"}


@pytest.fixture(scope="module")
def lab() -> Any:
    return Lab.shared()


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.numpy().tobytes().hex()]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return repr(value)


def final_of(job: Any) -> str:
    return json.dumps(plain(torch.load(job.run_dir / "final.pt", weights_only=False)), sort_keys=True)


def said(*outputs: str) -> dict[str, str]:
    """Return what was printed for each epoch, by epoch, and at the end: printed again, it must be the same."""
    lines: dict[str, str] = {}
    for output in outputs:
        for line in re.findall(r"^(?:epoch|end).*$", output, re.MULTILINE):
            name = " ".join(line.split()[:2])
            assert lines.setdefault(name, line) == line
    return lines


def unbroken(lab: Any, folder: Path, *args: str) -> tuple[str, dict[str, str], int]:
    job = Job(lab, SCRIPT, folder, args=args)
    assert job.run() == DONE, job.output()
    return final_of(job), said(job.output()), int(job.output().split()[-1])


SHAPES = {
    "epochs": (),
    "one-batch-epochs": ("--batch-size", "22"),
    "broken-off": ("--break-after", "3"),
    "steps": ("--steps", "9"),
}
SHORT = ("one-batch-epochs", "steps")
SHAPED = [pytest.param(args, id=name, marks=() if name in SHORT else pytest.mark.slow) for name, args in SHAPES.items()]


@pytest.mark.parametrize("args", SHAPED)
def test_variables_of_the_loop_are_restored_after_a_stop_at_any_point(
    lab: Any, tmp_path: Path, args: tuple[str, ...]
) -> None:
    expected, lines, points = unbroken(lab, tmp_path / "whole", *args)
    stops = 0
    for number in range(1, points + 1):
        job = Job(lab, SCRIPT, tmp_path / f"term-{number}", args=(*args, "--term-at", str(number)))
        codes, first = job.run(), job.output()
        if codes == LEFT:
            stops += 1
            job.args = args
            assert job.run() == DONE, (number, first, job.output())
        else:  # nothing asks for orders any more
            assert codes == DONE, (number, first)
        assert final_of(job) == expected, number
        assert said(first, job.output()) == lines, number
    # The last forward pass is the last place that asks, and the two points after it come too late.
    assert stops >= points - 2


@pytest.mark.parametrize("args", SHAPED)
def test_a_run_killed_after_its_first_epoch_ends_like_one_without_a_kill(
    lab: Any, tmp_path: Path, args: tuple[str, ...]
) -> None:
    expected, lines, points = unbroken(lab, tmp_path / "whole", *args)
    for number in range(points // 2, points + 1):
        job = Job(lab, SCRIPT, tmp_path / f"kill-{number}", args=(*args, "--kill-at", str(number)), env=EVERY_BOUNDARY)
        assert job.run() == KILLED
        first, job.args = job.output(), args
        assert job.run() == DONE, (number, first, job.output())
        assert final_of(job) == expected, number
        assert said(first, job.output()) == lines, number


def test_a_stop_after_the_loop_takes_effect_at_the_next_forward_pass(lab: Any, tmp_path: Path) -> None:
    job = Job(lab, SCRIPT, tmp_path / "run", args=("--term-at", "15"))  # the first of an evaluation
    assert job.run() == LEFT, job.output()
    # The checkpoint holds the state before the epoch's last batch, whose step is done again.
    assert job.said("suspended") == [{"step": 3}]
    assert "epoch 0 step 4" in job.output()


def test_a_finished_run_keeps_its_last_parameters_and_can_be_started_again(lab: Any, tmp_path: Path) -> None:
    expected, lines, _ = unbroken(lab, tmp_path / "run")
    job = Job(lab, SCRIPT, tmp_path / "run", incarnation=1)
    (newest,) = list((tmp_path / "run" / "checkpoints").glob("*/000012.pt"))
    saved = torch.load(newest, weights_only=False)
    assert plain(saved["objects"][0]) == json.loads(expected)["model"]
    assert job.run() == DONE, job.output()
    assert final_of(job) == expected
    assert said(job.output()) == {name: lines[name] for name in ("epoch 2", "end: epoch")}
