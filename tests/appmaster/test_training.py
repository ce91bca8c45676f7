"""The training helper: a run that is stopped and resumed ends as the unbroken one, bit by bit."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

_spec = importlib.util.spec_from_file_location("training_lab", Path(__file__).parent / "training_lab.py")
lab_module = sys.modules.setdefault("training_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
Job, Lab, Order = lab_module.Job, lab_module.Lab, lab_module.Order

SCRIPT = Path(__file__).parent / "training_script.py"
LEFT = [75]
DONE = [0]


@pytest.fixture(scope="module")
def lab() -> Iterator[Any]:
    lab = Lab()
    yield lab
    lab.close()


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


def suspend_when_told(run_dir: Path, **order: object) -> Any:
    """Return what has the launcher give an order when the script tells its point, and then lets the script go on."""

    def told(launcher: Any) -> None:
        def on_message(message: dict[str, Any]) -> None:
            if "point" in message.get("announce", {}):
                launcher.give(**order)
                (run_dir / "go").touch()

        launcher.on_message = on_message

    return told


def unbroken(job: Any, name: str, *args: str) -> tuple[bytes, int]:
    whole = Job(job.lab, job.script, job.run_dir.parent / name, args=args)
    assert whole.run() == DONE, whole.output()
    return final_of(whole), int(whole.output().split()[-1])


@pytest.mark.parametrize("args", [(), ("--steps", "12", "--generator")], ids=["epochs", "steps"])
def test_stopped_at_any_point_ends_as_the_unbroken_run(job: Any, args: tuple[str, ...]) -> None:
    expected, points = unbroken(job, "whole", *args)
    assert points > 30
    for number in range(1, points + 1):
        broken = Job(job.lab, SCRIPT, job.run_dir.parent / f"broken-{number}")
        broken.args = (*args, "--tell-at", str(number))
        order = suspend_when_told(broken.run_dir, order="suspend", deadline_seconds=30.0)
        codes = broken.run(told=order)
        # After the last forward pass nothing asks for orders any more.
        assert codes == LEFT or number >= points - 1, (number, broken.output())
        if codes == LEFT:
            (suspended,) = broken.said("suspended")
            broken.args = args
            assert broken.run() == DONE, (number, broken.output())
            assert suspended["step"] <= 12
        assert final_of(broken) == expected, number
