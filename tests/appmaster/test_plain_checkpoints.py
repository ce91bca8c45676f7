"""Checkpoints hold tensors and plain values only: what reading them without running code rules out is refused early."""

import io
import os
import random
import shutil
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.app.app_file import AppFile
from eunomia_appmaster.app.checkpoints import CheckpointStore
from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.training import convert, randomness
from eunomia_appmaster.training.environment import Environment
from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.keeper import Keeper
from eunomia_appmaster.training.kept import KeptModel, KeptOptimizer, KeptOther
from eunomia_appmaster.training.plain import plain

PLAIN = [
    None, True, 3, 2.5, 1j, "text", b"bytes", torch.float32, torch.device("cpu"), torch.Size([2]), torch.ones(2),
    torch.nn.Parameter(torch.ones(2)), [1, (2, "x")], {1, 2}, {"a": {"b": [None]}}, OrderedDict(a=1),
]  # fmt: skip


class Averager:
    """An object with a state of any kind."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


class Runs:
    """Runs code when its pickle is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def keeper(folder: Path, *, trusted: bool = False) -> Keeper:
    """Return the keeper of a run alone, which has begun to write."""
    made = Keeper(Gang(Environment()), JobCheckpoints(folder), trusted=trusted)
    made.seed = 7
    return made


def saved(folder: Path, payload: object, step: int = 5) -> None:
    store = JobCheckpoints(folder)
    store.begin(None, None)
    store.save(step, lambda path: torch.save(payload, path), incarnation=1)


def as_before(path: Path) -> dict[str, Any]:
    """What an earlier version has stored in place of a checkpoint."""
    payload: dict[str, Any] = torch.load(path, weights_only=True)
    for states in payload["randomness"]:
        name, keys, *rest = states["numpy"]
        states["numpy"] = (name, np.array(keys, dtype=np.uint32), *rest)
    return payload


@pytest.mark.parametrize("value", PLAIN, ids=str)
def test_plain_values_are_loaded_without_running_code(value: object) -> None:
    assert plain(value, "here") is value
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    assert type(torch.load(file, weights_only=True)) is type(value)


def test_numpy_numbers_are_saved_as_python_numbers() -> None:
    made = plain({"best": np.float64(0.5), "steps": [np.int64(3)], "kept": torch.ones(1)}, "here")
    assert (made["best"], made["steps"]) == (0.5, [3])
    assert (type(made["best"]), type(made["steps"][0])) == (float, int)


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({"history": np.ones(2)}, "numpy.ndarray (Averager['history'])"),
        ({"of": [{"x": random.Random(1)}]}, "random.Random (Averager['of'][0]['x'])"),
        ({"when": Path("/x")}, "pathlib.PosixPath (Averager['when'])"),
        ({Path("/x"): 1}, "pathlib.PosixPath (a key of Averager)"),
    ],
)
def test_prepare_refuses_an_object_with_another_state_by_name(tmp_path: Path, state: Any, named: str) -> None:
    with pytest.raises(InputError, match=r"tensors and plain values only.*trust_checkpoints = true") as refused:
        keeper(tmp_path).add(KeptOther(Averager(state)))
    assert str(refused.value).endswith(f"but got {named}")
    trusting = keeper(tmp_path, trusted=True)
    trusting.load()
    trusting.add(KeptOther(Averager(state)))
    trusting.save(trusting.capture(5))
    again = keeper(tmp_path, trusted=True)
    assert again.load() == 5
    again.add(KeptOther(thing := Averager({})))
    assert str(thing.state) == str(state) or "random" in named


def test_values_that_are_not_plain_are_refused_when_a_checkpoint_is_written(tmp_path: Path) -> None:
    made = keeper(tmp_path)
    made.load()
    made.add(KeptOther(thing := Averager({"n": 1})))
    made.state["best"] = {"of": {Path("/x")}}
    with pytest.raises(InputError, match=r"but got pathlib\.PosixPath \(run\.state\['best'\]\['of'\]\[0\]\)"):
        made.save(made.capture(5))
    made.state.clear()
    thing.state["n"] = object()
    with pytest.raises(InputError, match=r"but got builtins\.object \(Averager\['n'\]\)"):
        made.save(made.capture(5))
    assert JobCheckpoints(tmp_path).latest() is None


def test_a_run_resumes_with_its_model_and_all_random_states(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    made = keeper(tmp_path)
    made.load()
    for kept in (KeptModel(model), KeptOptimizer(optimizer), KeptOther(scheduler)):
        made.add(kept)
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    scheduler.step(np.float64(0.25))
    made.save(made.capture(5))
    drawn = (torch.rand(2).tolist(), random.random(), np.random.random(), np.random.standard_normal())
    other = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    again = keeper(tmp_path)
    assert again.load() == 5
    again.add(KeptModel(other))
    again.restore_randomness()
    assert (torch.rand(2).tolist(), random.random(), np.random.random(), np.random.standard_normal()) == drawn
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))


def test_code_in_a_checkpoint_runs_only_if_the_checkpoint_is_trusted(tmp_path: Path) -> None:
    folder, mark = tmp_path / "checkpoints", tmp_path / "ran"
    made = keeper(folder)
    made.load()
    made.save(made.capture(4))
    payload = torch.load(JobCheckpoints(folder).good()[0].path, weights_only=True)
    saved(folder, payload | {"step": 5, "state": {"x": Runs(mark)}})
    with pytest.raises(EunomiaError, match=r"tensors and plain values only.*training\.convert FOLDER"):
        keeper(folder).load()
    assert not mark.exists()
    assert keeper(folder, trusted=True).load() == 5
    assert mark.exists()


def test_checkpoints_of_an_earlier_version_must_be_converted_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "1" / "checkpoints"
    made = keeper(folder)
    made.load()
    for step in (4, 5):
        made.save(made.capture(step))
    drawn = np.random.random()
    payloads = {found.step: as_before(found.path) for found in JobCheckpoints(folder).good()}
    shutil.rmtree(folder)
    for step, payload in payloads.items():  # that version had no folders of writers
        CheckpointStore(folder).save(step, partial(torch.save, payload), incarnation=1)
    with pytest.raises(EunomiaError, match=r"training\.convert FOLDER makes those of an earlier version so"):
        keeper(folder).load()
    for said in (f"{folder}/000005.pt: converted", "all are plain already"):
        monkeypatch.setattr("sys.argv", ["convert", str(tmp_path)])
        assert convert.main() == 0
        assert said in capsys.readouterr().out
    again = keeper(folder)
    assert again.load() == 5
    again.restore_randomness()
    assert np.random.random() == drawn
    assert JobCheckpoints(folder).steps() == [4, 5]
    monkeypatch.setattr("sys.argv", ["convert", str(tmp_path / "none")])
    assert convert.main() == 2
    assert "a folder to convert must hold checkpoints" in capsys.readouterr().err


def test_random_states_of_both_versions_are_restored() -> None:
    device = torch.device("cpu")
    states = randomness.capture(device)
    drawn = np.random.random()
    name, keys, *rest = states["numpy"]
    for numpy in (states["numpy"], (name, np.array(keys, dtype=np.uint32), *rest)):
        randomness.restore(states | {"numpy": numpy}, device)
        assert np.random.random() == drawn


def test_the_app_file_and_the_environment_set_whether_checkpoints_are_trusted(tmp_path: Path) -> None:
    text = '[app]\nname = "a"\n[job]\ncommand = "true"\n'
    assert not AppFile.parse(text, place="a.toml", folder=tmp_path).job.trust_checkpoints
    assert AppFile.parse(f"{text}trust_checkpoints = true\n", place="a.toml", folder=tmp_path).job.trust_checkpoints
    with pytest.raises(InputError, match="trust_checkpoints must be true or false"):
        AppFile.parse(f'{text}trust_checkpoints = "yes"\n', place="a.toml", folder=tmp_path)
    assert Environment.read({"EUNOMIA_TRUST_CHECKPOINTS": "1"}).trust_checkpoints
    assert not Environment.read({}).trust_checkpoints
    with pytest.raises(InputError, match="EUNOMIA_TRUST_CHECKPOINTS must be 1 or 0"):
        Environment.read({"EUNOMIA_TRUST_CHECKPOINTS": "yes"})
