"""The training helper without an app master, and its small parts."""

import contextlib
import copy
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster import training
from eunomia_appmaster.training import supervision
from eunomia_appmaster.training.environment import Environment
from eunomia_appmaster.training.orders import OrderClient

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "docs" / "examples" / "digits"
PATHS = os.pathsep.join(str(ROOT / name) for name in ("core", "appmaster"))
ALONE = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextlib.contextmanager
def training_said() -> Iterator[list[dict[str, Any]]]:
    """The announcements that a run sends to its launcher."""
    said: list[dict[str, Any]] = []

    def say(_: Any, kind: str, content: dict[str, Any]) -> None:
        if kind == "announce":
            said.append(content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervision.Supervision, "say", say)
        yield said


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, no variables of a launcher, and signal handlers as they were afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("EUNOMIA_") or name in {"RANK", "WORLD_SIZE"}]:
        monkeypatch.delenv(name)
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


def small(run: training.Run) -> tuple[Any, Any, Any]:
    model = nn.Linear(2, 1)
    loader = DataLoader(TensorDataset(torch.ones(8, 2), torch.ones(8, 1)), batch_size=4)
    return run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)


def train(run: training.Run, model: Any, optimizer: Any, loader: Any, epochs: int) -> list[int]:
    seen = []
    for epoch in run.epochs(epochs):
        seen.append(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            run.log({"train/loss": loss})
    return seen


def test_a_script_without_an_arbiter_runs_as_usual(here: Path) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    run = training.attach()
    assert train(run, *small(run), epochs=2) == [0, 1]
    assert (run.step, run.rank, run.world_size, run.is_main, dict(run.params)) == (4, 0, 1, True, {})
    assert signal.getsignal(signal.SIGTERM) is handler
    (folder,) = (here / "runs").iterdir()
    assert folder.name.endswith(f"Z_{socket.gethostname()}")
    assert [path.name for path in here.iterdir()] == ["runs"]
    again = training.attach()
    assert train(again, *small(again), epochs=2) == [0, 1]


def test_a_run_folder_makes_a_script_resumable_without_an_arbiter(here: Path) -> None:
    run = training.attach("mine")
    model, optimizer, loader = small(run)
    run.state["best"] = 0.5
    assert train(run, model, optimizer, loader, epochs=2) == [0, 1]
    again = training.attach(run_dir="mine")
    restored, *others = small(again)
    assert again.step == 4
    assert again.state == {"best": 0.5}
    assert torch.equal(restored.weight, model.weight)
    assert train(again, restored, *others, epochs=3) == [2]
    assert again.step == 6
    assert sorted(path.suffix for path in Path("mine/logs").iterdir()) == [".r1", ".r2"]


def test_a_script_stopped_by_sigterm_exits_with_a_code_other_than_0(here: Path) -> None:
    script = here / "train.py"
    script.write_text((EXAMPLES / "train.py").read_text().replace("attach()", 'attach("mine")'))
    command = (
        f"{sys.executable} {script} --epochs 100000 & wait $! ; code=$?; test $code = 0 && touch published; exit $code"
    )
    shell = subprocess.Popen(["bash", "-c", command], env=ALONE, start_new_session=True, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(here.glob("mine/logs/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    trainer = int(subprocess.check_output(["pgrep", "-P", str(shell.pid)]).split()[0])
    os.kill(trainer, signal.SIGTERM)
    assert shell.wait(timeout=60) == 75
    assert not (here / "published").exists()
    assert list(here.glob("mine/checkpoints/*/*.pt"))


def test_a_script_under_torchrun_is_data_parallel(here: Path) -> None:
    script = here / "two.py"
    script.write_text(
        "import os\nimport torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "from eunomia_appmaster import training\nrun = training.attach()\nmodel = nn.Linear(2, 1)\n"
        "model = run.prepare(model)\nos.write(1, f'{run.rank} {run.world_size} {type(model).__name__}\\n'.encode())\n"
        "if run.is_main:\n    run.log({'a': 1.0})\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    output = subprocess.run(command, env=ALONE, timeout=100, check=True, capture_output=True, text=True).stdout
    assert sorted(output.splitlines()) == [f"{rank} 2 DistributedDataParallel" for rank in (0, 1)]
    assert len(list((here / "runs").iterdir())) == 1


def test_weights_swapped_for_an_evaluation_are_never_saved(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", sys.exit)
    run = training.attach("mine")
    model, optimizer, loader = small(run)
    weights = []
    with pytest.raises(SystemExit) as left:
        for _epoch in run.epochs(3):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
            weights.append(model.weight.detach().clone())
            with torch.no_grad():
                model.weight.add_(1.0)
                if run.step == 4:
                    os.kill(os.getpid(), signal.SIGTERM)
                model(torch.ones(1, 2))
                model.weight.copy_(weights[-1])
    assert left.value.code == 75
    assert run.step == 4
    again = training.attach("mine")
    restored, *others = small(again)
    assert train(again, restored, *others, epochs=2) == [1]
    assert torch.equal(restored.weight, weights[1])


def test_nan_and_tensors_are_logged_unchanged(here: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = training.attach("mine")
    run.log({"a": torch.tensor([2.5]), "b": float("nan"), "c": 3})
    found = EventAccumulator(str(run.log_dir)).Reload()
    assert found.Scalars("a")[0].value == 2.5
    assert found.Scalars("b")[0].value != found.Scalars("b")[0].value
    assert found.Scalars("c")[0].value == 3.0


@pytest.mark.parametrize("given", [0, -3, "64", float("nan"), 1e30, None, True])
def test_an_announced_batch_size_must_be_positive(here: Path, given: Any) -> None:
    with pytest.raises(InputError) as refused:
        training.attach("mine").announce(batch_size=given)
    rule = "batch_size must be a number above 0, at most 1e+15"
    assert str(refused.value) == f"{rule}, but got {given!r} (announce)"


@pytest.mark.parametrize("given", [64, 64.0, np.int64(64), np.float32(64.0), torch.tensor(64)])
def test_numpy_and_torch_numbers_can_be_announced_too(here: Path, given: Any) -> None:
    with training_said() as said:
        training.attach("mine").announce(batch_size=given)
    assert json.loads(json.dumps(said)) == [{"batch_size": 64}]


def test_a_prepared_model_can_be_copied_and_pickled(here: Path) -> None:
    run = training.attach("mine")
    model, *_ = small(run)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    assert torch.equal(averaged.module.weight, model.weight)
    assert torch.equal(pickle.loads(pickle.dumps(model)).weight, model.weight)
    assert torch.equal(copy.deepcopy(model).weight, model.weight)


def test_gradients_may_be_scaled_and_accumulated(here: Path) -> None:
    def final(**options: int) -> torch.Tensor:
        torch.manual_seed(1)
        run = training.attach()
        inputs = torch.randn(14, 3)
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        model = nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        loader = DataLoader(data, batch_size=5, shuffle=True)
        model, optimizer, scaler, loader = run.prepare(model, optimizer, scaler, loader, **options)
        for x, y in run.steps(loader, 7):
            scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
            if not run.accumulating:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert run.step == 7
        return model.weight.detach()

    whole = final()
    assert torch.allclose(whole, final(micro_batches=2), atol=1e-6)
    assert torch.allclose(whole, final(micro_batch_size=1), atol=1e-6)


def test_an_evaluation_gets_whole_batches(here: Path) -> None:
    run = training.attach()
    model = run.prepare(nn.Linear(1, 1))
    data = TensorDataset(torch.arange(10.0).unsqueeze(1))
    loader = run.prepare(DataLoader(data, batch_size=4), micro_batches=2)
    assert [len(x) for (x,) in loader] == [2, 2, 2, 2, 1, 1]
    with torch.no_grad():
        assert [len(x) for (x,) in loader] == [4, 4, 2]
    model.eval()
    assert [len(x) for (x,) in loader] == [4, 4, 2]
    assert len(loader) == 3
    assert loader.batch_size == 4


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_objects_that_cannot_be_prepared_are_refused(here: Path) -> None:
    run = training.attach()
    data = TensorDataset(torch.ones(4, 1))
    sampler: Any = DistributedSampler(data, num_replicas=2, rank=0)
    with pytest.raises(InputError, match=r"must hold the whole data, .* but got a DistributedSampler"):
        run.prepare(DataLoader(data, sampler=sampler))
    with pytest.raises(InputError, match="a dataset with indices"):
        run.prepare(DataLoader(Stream()))
    with pytest.raises(InputError, match="state_dict and load_state_dict, but got int"):
        run.prepare(3)
    with pytest.raises(InputError, match="must be given a prepared loader"):
        next(run.steps(DataLoader(data), 3))


def test_objects_other_than_those_in_the_checkpoint_are_refused(here: Path) -> None:
    run = training.attach("mine")
    train(run, *small(run), epochs=1)
    again = training.attach("mine")
    with pytest.raises(
        EunomiaError, match=r"in that order: Linear, SGD, but got Conv1d at place 1 \(checkpoint of step 2\)"
    ):
        again.prepare(nn.Conv1d(1, 1, 1))


def test_errors_in_environment_variables_name_the_variable() -> None:
    with pytest.raises(InputError, match="EUNOMIA_STOP_AT must be a whole number, but got 'soon'"):
        Environment.read({"EUNOMIA_STOP_AT": "soon"})
    with pytest.raises(InputError, match="EUNOMIA_PARAMS must be a JSON object"):
        Environment.read({"EUNOMIA_PARAMS": "[1]"})
    assert Environment.read({"EUNOMIA_PARAMS": '{"lr": 0.1}'}).params == {"lr": 0.1}


def test_the_socket_is_found_in_a_folder_with_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["a-long-name-of-a-folder"] * 8)
    folder.mkdir(parents=True)
    with contextlib.chdir(folder), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("orders.sock")
        listener.listen()
        client = OrderClient(folder, rank=1)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b'{"order": "sus')
            assert client.poll() == []
            connection.sendall(b'pend"}\nnonsense\n{"order": "checkpoint"}\n')
            assert client.poll() == [{"order": "suspend"}, {"order": "checkpoint"}]
            client.say("saved", {"step": 3})
            lines = [json.loads(line) for line in connection.recv(1000).splitlines()]
        assert lines == [{"hello": {"pid": os.getpid(), "rank": 1}}, {"saved": {"step": 3}}]
        # The launcher comes back: the last of each kind is sent again.
        client.say("saved", {"step": 4})
        assert client.poll() == []
        client._next_try = 0.0
        client.poll()
        with listener.accept()[0] as connection:
            assert b'{"saved": {"step": 4}}' in connection.recv(1000)


def test_the_package_imports_without_torch() -> None:
    command = "import sys, eunomia_appmaster; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], env=ALONE, check=False).returncode == 0
