"""The training helper: a run that is stopped and resumed ends as the unbroken one, bit by bit."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.appmaster.training_lab import Job, Lab

SCRIPT = Path(__file__).parent / "training_script.py"
LEFT = [75]
DONE = [0]


@pytest.fixture(scope="module")
def lab() -> Any:
    return Lab.shared()


@pytest.fixture
def job(lab: Any, tmp_path: Path) -> Any:
    return Job(lab, SCRIPT, tmp_path / "run")


def final_of(job: Any) -> bytes:
    """Return everything that a run ended with, as bytes."""
    return json.dumps(plain(torch.load(job.run_dir / "final.pt", weights_only=False)), sort_keys=True).encode()


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.numpy().tobytes().hex()]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return repr(value)


def suspend_when_ordered(run_dir: Path, **order: object) -> Any:
    """Return what has the launcher give an order when the script tells its point, and then lets the script go on."""

    def ordered(launcher: Any) -> None:
        def on_message(message: dict[str, Any]) -> None:
            if "point" in message.get("announce", {}):
                launcher.give(**order)
                (run_dir / "go").touch()

        launcher.on_message = on_message

    return ordered


def unbroken(job: Any, name: str, *args: str) -> tuple[bytes, int]:
    whole = Job(job.lab, job.script, job.run_dir.parent / name, args=args)
    assert whole.run() == DONE, whole.output()
    return final_of(whole), int(whole.output().split()[-1])


@pytest.mark.parametrize(
    "args",
    [pytest.param((), marks=pytest.mark.slow, id="epochs"), pytest.param(("--steps", "12", "--generator"), id="steps")],
)
def test_a_run_stopped_at_any_point_ends_like_one_without_a_stop(job: Any, args: tuple[str, ...]) -> None:
    expected, points = unbroken(job, "whole", *args)
    assert points > 30
    for number in range(1, points + 1, 2 if args else 1):
        broken = Job(job.lab, SCRIPT, job.run_dir.parent / f"broken-{number}")
        broken.args = (*args, "--tell-at", str(number))
        order = suspend_when_ordered(broken.run_dir, order="suspend", deadline_seconds=30.0)
        codes = broken.run(ordered=order)
        # After the last forward pass nothing asks for orders any more.
        assert codes == LEFT or number >= points - 1, (number, broken.output())
        if codes == LEFT:
            (suspended,) = broken.said("suspended")
            broken.args = args
            assert broken.run() == DONE, (number, broken.output())
            assert suspended["step"] <= 12
        assert final_of(broken) == expected, number


def test_sigterm_counts_as_a_suspend_order(job: Any) -> None:
    expected, points = unbroken(job, "whole")
    for number in (7, points - 3):  # in a loop's body, in the last evaluation
        broken = Job(job.lab, SCRIPT, job.run_dir.parent / f"term-{number}", args=("--term-at", str(number)))
        assert broken.run() == LEFT, broken.output()
        assert "eunomia: left at step" in broken.output()
        broken.args = ()
        assert broken.run() == DONE, broken.output()
        assert final_of(broken) == expected


def test_a_run_stopped_again_and_again_ends_like_one_without_a_stop(job: Any) -> None:
    expected, _ = unbroken(job, "whole", "--generator", "--loader-workers", "1")
    stops = 0
    for number in (5, 4, 3, 9, 2, 6, 1):
        job.args = ("--generator", "--loader-workers", "1", "--term-at", str(number))
        stops += job.run() == LEFT
    job.args = ("--generator", "--loader-workers", "1")
    assert job.run() == DONE, job.output()
    assert stops > 4
    assert final_of(job) == expected


def test_all_workers_of_a_gang_stop_at_the_same_step_and_resume(lab: Any, tmp_path: Path) -> None:
    expected = unbroken_gang(lab, tmp_path / "whole", "--generator")
    for number in (8, 12, 14):  # in a loop's body, in an evaluation, between epochs
        job = Job(lab, SCRIPT, tmp_path / f"run-{number}", args=("--generator", "--term-at", str(number)))
        assert job.run(workers=2) == [75, 75], job.output(0) + job.output(1)
        assert len({message["step"] for message in job.said("suspended")}) == 1
        assert len(job.said("suspended")) == 2
        job.args = ("--generator",)
        assert job.run(workers=2) == [0, 0], job.output(0) + job.output(1)
        assert final_of(job) == expected


def unbroken_gang(lab: Any, folder: Path, *args: str) -> bytes:
    job = Job(lab, SCRIPT, folder, args=args)
    assert job.run(workers=2) == [0, 0], job.output(0) + job.output(1)
    return final_of(job)


def test_a_run_whose_rung_ends_an_epoch_stops_after_the_evaluation_of_that_epoch(job: Any) -> None:
    assert job.run(EUNOMIA_STOP_AT=8) == LEFT, job.output()
    assert job.said("suspended") == [{"step": 8}]
    assert [step for step, _ in scalars(job)["val/error"]] == [4, 8]
    assert job.run(EUNOMIA_STOP_AT=8) == LEFT  # still paused there
    assert job.run() == DONE
    assert final_of(job) == unbroken(job, "whole")[0]
    assert [step for step, _ in scalars(job)["val/error"]] == [4, 8, 12]


def test_a_run_stops_at_a_rung_within_an_epoch_at_once(job: Any) -> None:
    assert job.run(EUNOMIA_STOP_AT=6) == LEFT
    assert job.said("suspended") == [{"step": 6}]
    assert [step for step, _ in scalars(job)["val/error"]] == [4]
    assert job.run() == DONE
    assert final_of(job) == unbroken(job, "whole")[0]


def test_an_order_moves_or_removes_a_rung(job: Any) -> None:
    job.run(ordered=lambda launcher: launcher.at_once(order="stop_at", step=4), EUNOMIA_STOP_AT=2)
    assert job.said("suspended") == [{"step": 4}]
    assert job.run(ordered=lambda launcher: launcher.at_once(order="stop_at"), EUNOMIA_STOP_AT=5) == DONE


def test_a_loop_over_steps_stops_at_a_rung_at_the_end_of_an_iteration(job: Any) -> None:
    job.args = ("--steps", "10")
    for rung in (3, 4, 8):
        assert job.run(EUNOMIA_STOP_AT=rung) == LEFT
        assert job.said("suspended") == [{"step": rung}]
    assert job.run(EUNOMIA_STOP_AT=10) == DONE  # the end of the work is no rung
    assert final_of(job) == unbroken(job, "whole", "--steps", "10")[0]


def test_max_iterations_end_the_loops_and_the_last_evaluation_still_runs(job: Any) -> None:
    assert job.run(EUNOMIA_MAX_ITERATIONS=6) == DONE, job.output()
    assert [step for step, _ in scalars(job)["val/error"]] == [4, 6]
    assert [step for step, _ in scalars(job)["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert job.said("saved")[-1] == {"step": 6}
    assert job.said("progress")[-1]["step"] == 6
    before = final_of(job)
    assert job.run(EUNOMIA_MAX_ITERATIONS=6) == DONE  # nothing is left to do
    assert json.loads(final_of(job))["model"] == json.loads(before)["model"]


LOADERLESS = """
import time, torch
from eunomia_appmaster import training
run = training.attach()
model = torch.nn.Linear(2, 1)
model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(20):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.06)
"""


def test_a_loop_without_a_prepared_loader_reports_its_steps_and_speed(job: Any) -> None:
    job.script = job.run_dir.parent / "loaderless.py"
    job.script.write_text(LOADERLESS)
    assert job.run() == DONE, job.output()
    first, *_, last = job.said("progress")
    assert first == {"step": 1, "seconds_per_step": None}
    assert 1 < last["step"] <= 20
    assert last["seconds_per_step"] >= 0.06


def test_a_corrupt_checkpoint_falls_back_to_the_last_good_one(job: Any) -> None:
    assert job.run(EUNOMIA_STOP_AT=3) == LEFT
    assert job.run(EUNOMIA_STOP_AT=7) == LEFT
    newest = job.run_dir / "checkpoints" / "a0-i2-g1" / "000007.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    job.args = ("--tell-at", "1")
    job.run(ordered=suspend_when_ordered(job.run_dir, order="suspend"))
    assert job.said("suspended") == [{"step": 3}]
    job.args = ()
    assert job.run() == DONE
    assert final_of(job) == unbroken(job, "whole")[0]


def test_checkpoints_are_saved_on_order_and_periodically(job: Any) -> None:
    job.args = ("--tell-at", "7")
    assert job.run(ordered=suspend_when_ordered(job.run_dir, order="checkpoint")) == DONE
    assert len(job.said("saved")) == 2  # the ordered one and the last
    assert job.said("saved")[0]["step"] < 12
    assert job.said("suspended") == []
    periodic = Job(job.lab, SCRIPT, job.run_dir.parent / "periodic")
    assert periodic.run(EUNOMIA_CHECKPOINT_EVERY_SECONDS=0.0001) == DONE
    assert {message["step"] for message in periodic.said("saved")} >= set(range(1, 13))
    assert final_of(periodic) == final_of(job)


def test_a_killed_run_resumes_from_its_periodic_checkpoint(job: Any) -> None:
    expected, _ = unbroken(job, "whole")
    losses = scalars(Job(job.lab, SCRIPT, job.run_dir.parent / "whole"))["train/loss"]
    for number in (9, 11, 14, 24):  # after a step, in an evaluation, between epochs, after the next loop
        killed = Job(job.lab, SCRIPT, job.run_dir.parent / f"killed-{number}", args=("--kill-at", str(number)))
        assert killed.run(EUNOMIA_CHECKPOINT_EVERY_SECONDS=0.0001) == [-9]
        killed.args = ()
        assert killed.run() == DONE
        assert final_of(killed) == expected
        # What was logged before the checkpoint is not logged again: it must have been on the disk as well.
        assert scalars(killed)["train/loss"] == losses


def test_a_lost_launcher_does_not_stop_the_training(job: Any) -> None:
    def ordered(launcher: Any) -> None:
        launcher.on_message = lambda message: launcher.close_connections() if "hello" in message else None

    assert job.run(ordered=ordered) == DONE, job.output()
    assert final_of(job) == unbroken(job, "whole")[0]


def scalars(job: Any) -> dict[str, list[tuple[int, float]]]:
    """Return what all incarnations have logged: a newer one wins a step."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    values: dict[str, dict[int, float]] = {}
    for path in sorted((job.run_dir / "logs").iterdir(), key=lambda path: path.suffix):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                values.setdefault(value.tag, {})[event.step] = float(value.tensor.float_val[0])
    return {tag: sorted(points.items()) for tag, points in values.items()}


def test_every_step_is_logged_once_over_all_incarnations(job: Any) -> None:
    for rung in (3, 4, 6):
        assert job.run(EUNOMIA_STOP_AT=rung) == LEFT
    assert job.run() == DONE
    names = sorted(path.suffix for path in (job.run_dir / "logs").iterdir())
    assert names == [".r1", ".r2", ".r3", ".r4"]
    found = scalars(job)
    whole = Job(job.lab, SCRIPT, job.run_dir.parent / "whole")
    whole.run()
    assert {tag: found[tag] for tag in ("train/loss", "val/error")} == {
        tag: scalars(whole)[tag] for tag in ("train/loss", "val/error")
    }


def test_a_finished_run_continues_when_it_is_started_with_more_steps(job: Any) -> None:
    job.args = ("--steps", "7")
    assert job.run() == DONE
    job.args = ("--steps", "12")
    assert job.run() == DONE
    assert final_of(job) == unbroken(job, "whole", "--steps", "12")[0]


def test_the_script_without_the_helper_resumes_after_a_sigterm(lab: Any, tmp_path: Path) -> None:
    script = SCRIPT.parent.parent.parent / "docs" / "examples" / "digits" / "train_plain.py"
    args = ("--logdir", str(tmp_path / "logs"), "--ckpt", str(tmp_path / "last.pt"))

    def start(steps: int) -> int:
        output = tmp_path / "output"
        return lab.start(script, *args, "--steps", str(steps), env={}, cwd=tmp_path, output=output)

    pid = start(1_000_000)
    while not list(tmp_path.glob("logs/*")):
        time.sleep(0.01)
    os.kill(pid, signal.SIGTERM)
    assert lab.wait(pid) == 75
    step = torch.load(tmp_path / "last.pt", weights_only=True)["step"]
    assert 0 < step < 1_000_000
    assert lab.wait(start(step + 5)) == 0
    assert torch.load(tmp_path / "last.pt", weights_only=True)["step"] == step + 5
