"""The training programs themselves: losses that fall, batch sizes that are the announced ones, and changes of a gang.

Workers are forked from the process that has imported torch for all tests of training.
"""

import itertools
import json
import math
import shlex
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.appmaster.live_lab import live_job
from tests.appmaster.training_lab import Job, Lab

from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.profiler.log_folder import LogFolder
from eunomia_testbed.workloads.programs import PROGRAMS, Program, program_named

DONE, LEFT = 0, 75
NAMES = [program.name for program in PROGRAMS]
IN_DOUBLE_PRECISION = Path(__file__).with_name("in_double_precision.py")
TOLERANCE = 1e-6
"""Of parameters after some hundred steps in double precision, relative; rounding is 1e-16."""
WITH_BATCH_NORM = ("resnet", "mobilenet", "m5")


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab.shared()


def script(program: Program) -> Path:
    spec = find_spec(program.module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


def words(program: Program, **options: object) -> list[str]:
    """Return the arguments of a program's script."""
    return shlex.split(program.command(**options))[3:]  # type: ignore[arg-type]


def trained(lab: Lab, folder: Path, program: Program, iterations: int, **options: object) -> LogFolder:
    """Train without an app master's orders, and return the logs."""
    folder.mkdir()
    env = {"EUNOMIA_RUN_DIR": str(folder), "EUNOMIA_SEED": "7", "EUNOMIA_MAX_ITERATIONS": str(iterations)}
    pid = lab.start(script(program), *words(program, **options), env=env, cwd=folder, output=folder / "output")
    assert lab.wait(pid) == DONE, (folder / "output").read_text()
    logs = LogFolder(folder / "logs")
    logs.poll()
    return logs


def test_the_loss_of_every_program_falls(lab: Lab, tmp_path: Path) -> None:
    for program in PROGRAMS:
        logs = trained(lab, tmp_path / program.name, program, 30)
        loss = logs.series("train/loss").value
        assert len(loss) == 30
        assert loss[-5:].mean() < 0.9 * loss[:5].mean(), (program.name, loss)
        assert program.metric in logs.tags()


def test_a_program_runs_without_eunomia(lab: Lab, tmp_path: Path) -> None:
    args = words(program_named("vgg"), epochs=2, options={"width": 4})
    pid = lab.start(script(program_named("vgg")), *args, env={}, cwd=tmp_path, output=tmp_path / "output")
    assert lab.wait(pid) == DONE, (tmp_path / "output").read_text()
    (folder,) = (tmp_path / "runs").iterdir()
    logs = LogFolder(folder)
    logs.poll()
    assert len(logs.series("train/loss")) == 2 * math.ceil(1437 / 32)
    assert len(logs.series("val/accuracy")) == 2


def epochs(logs: LogFolder, samples: int) -> Iterator[tuple[int, int]]:
    """Yield each epoch's number of steps, and the batch size that was announced by its first step."""
    ends = [0, *logs.series("val/loss").step.tolist()]
    announced = logs.series("eunomia/batch_size")
    sizes = dict(zip(announced.step.tolist(), announced.value.tolist(), strict=True))
    size = 0
    for first, last in itertools.pairwise(ends):
        size = int(sizes.get(first, size))
        yield last - first, size


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("mlp", "accordion"),
        ("mlp", "gns"),
        *(
            pytest.param(name, mode, marks=pytest.mark.slow)
            for name in NAMES
            for mode in ("accordion", "gns")
            if name != "mlp"
        ),
    ],
)
def test_the_announced_batch_size_is_the_one_trained_with(lab: Lab, tmp_path: Path, name: str, mode: str) -> None:
    program = program_named(name)
    small, options = 16, {"check-every": 1, **({"width": 64} if name == "mlp" else {})}
    logs = trained(
        lab, tmp_path / name, program, 10_000, batch_size=small, mode=mode, largest_batch=256, epochs=6, options=options
    )
    found = list(epochs(logs, program.samples))
    assert len(found) == 6
    assert {size for _, size in found} - {0} != set(), "it announces none"
    assert [steps for steps, _ in found] == [math.ceil(program.samples / (size or small)) for _, size in found]
    loss = logs.series("train/loss").value
    assert loss[-3:].mean() < loss[:3].mean()


def parameters(folder: Path) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """Return the model's tensors in the last checkpoint."""
    import torch

    last = JobCheckpoints(folder / "checkpoints").latest()
    assert last is not None
    model = torch.load(last.path, map_location="cpu", weights_only=True)["objects"][0]
    return {name: tensor.double().numpy() for name, tensor in model.items()}


def deviation(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:  # type: ignore[type-arg]
    """Return the largest norm of a tensor's difference, relative to the tensor's norm."""
    assert one.keys() == other.keys()
    norms = {name: max(float(np.linalg.norm(tensor)), 1e-3) for name, tensor in one.items()}
    return max(float(np.linalg.norm(one[name] - other[name])) / norms[name] for name in one)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_live_changes_and_restarts_end_with_the_same_parameters(
    lab: Lab, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = program_named(name)
    args = (str(script(program)), *words(program, options={program.cost_option: 8}))
    between, beside = in_both_modes(lab, tmp_path, name, args, capsys)
    assert between < TOLERANCE
    if name not in WITH_BATCH_NORM:
        assert beside < TOLERANCE


DOCUMENTED = {
    "digits": ("digits/train.py",),
    "doubled batches": ("adapting/train.py", "--samples", "256", "--double-at", "4", "8"),
    "accordion": ("adapting/digits.py", "--rule", "accordion", "--every", "2"),
    "gns": ("adapting/digits.py", "--rule", "gns"),
}
"""Scripts of the documents, with arguments by which their batch size changes while the gang does."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", DOCUMENTED)
def test_scripts_of_the_documents_end_with_the_same_parameters_in_both_modes(
    lab: Lab, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, *more = DOCUMENTED[name]
    args = (str(Path(__file__).parents[2] / "docs" / "examples" / path), *more, "--epochs", "100000")
    between, beside = in_both_modes(lab, tmp_path, name, args, capsys)
    assert between < TOLERANCE
    if name != "gns":  # the noise scale is measured from the workers' gradients
        assert beside < TOLERANCE


def in_both_modes(
    lab: Lab, folder: Path, name: str, args: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> tuple[float, float]:
    """Change a gang live as soon as it can, make the same changes at the same steps by restarts, and train one worker.

    Returns:
        How far the final parameters of the live run are from those of the restarts, and from those of one worker.
    """
    changes = changed_live(lab, folder / "live", args)
    restarted = Job(lab, IN_DOUBLE_PRECISION, folder / "restarted", args=args)
    for (_, size), (stop, _) in itertools.pairwise(changes):
        if stop:
            assert restarted.run(workers=size, EUNOMIA_STOP_AT=stop) == [LEFT] * size, restarted.output()
    fixed = Job(lab, IN_DOUBLE_PRECISION, folder / "fixed", args=args)
    assert fixed.run(EUNOMIA_STOP_AT=changes[-1][0]) == [LEFT], fixed.output()
    live, by_restarts, alone = (parameters(folder / each) for each in ("live", "restarted", "fixed"))
    between, beside = deviation(live, by_restarts), deviation(live, alone)
    with capsys.disabled():
        sys.stdout.write(f"{name}: {changes}, live to restarts {between:.1e}, live to one worker {beside:.1e}\n")
    return between, beside


def changed_live(lab: Lab, folder: Path, args: tuple[str, ...]) -> list[tuple[int, int]]:
    """Train with live changes; return each generation's first step and size, and at last the last step and 0."""
    with live_job(lab, IN_DOUBLE_PRECISION, folder, *args) as job:
        job.start(1)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        for size in (2, 3, 1, 2):
            job.order(size)
            job.settle()
        last = job.confirmed[-1]["step"] + 100
        job.repairs = False
        for worker in job.workers.values():
            if worker.connection is not None:
                worker.connection.sendall(json.dumps({"order": "stop_at", "step": last}).encode() + b"\n")
        assert set(job.finish().values()) == {LEFT}, job.output()
        found = [(each["step"], each["size"]) for each in sorted(job.confirmed, key=lambda each: each["generation"])]
    assert [size for _, size in found] == [1, 2, 3, 1, 2]
    return [*found, (last, 0)]
