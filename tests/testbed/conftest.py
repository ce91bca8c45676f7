"""Fixtures of the testbed: a made-up run to write, read and show."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eunomia_testbed.results import RunData, RunFacts
from eunomia_testbed.results.tables import TABLES, schema_of

sys.path.insert(0, str(Path(__file__).parent))  # helper modules beside the tests


def _load(name: str) -> ModuleType:
    """A helper module of this folder; with importlib's import mode it is not on the path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def write_sample() -> Callable[..., Path]:
    """Write the made-up run into a new folder."""
    sample = _load("sample_run")

    def write(path: Path, **options: bool) -> Path:
        folder: Path = sample.Sample().run().write(path, **options).path
        return folder

    return write


@pytest.fixture(scope="session")
def sample_folder(write_sample: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up run, written once; read only."""
    return write_sample(tmp_path_factory.mktemp("sample") / "demo")


@pytest.fixture
def sample(sample_folder: Path) -> RunData:
    """The made-up run, read."""
    return RunData.load(sample_folder)


@pytest.fixture(scope="session")
def simulated_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up simulation of three policies with two seeds each, written once; read only."""
    folder: Path = _load("sample_simulation").write_simulation(tmp_path_factory.mktemp("simulated") / "run").path
    return folder


@pytest.fixture(scope="session")
def simulated(simulated_folder: Path) -> RunData:
    """The made-up simulation, read."""
    return RunData.load(simulated_folder)


@pytest.fixture(scope="session")
def write_simulation() -> Callable[..., Path]:
    """Write a made-up simulation into a new folder."""
    sample = _load("sample_simulation")

    def write(path: Path, **options: Any) -> Path:
        folder: Path = sample.write_simulation(path, **options).path
        return folder

    return write


@pytest.fixture(scope="session")
def large_run() -> RunData:
    """Tables of 100,000 jobs on 2,496 slots."""
    frames = _load("sample_simulation").large_frames(100_000)
    facts = RunFacts(kind="simulate", command=("eunomia", "simulate"), profiles={"fifo": ""}, slots=2496)
    tables = {table: frames.get(table, schema_of(table).to_frame()) for table in TABLES}
    return RunData(name="large", facts=facts, records={}, **tables)


@pytest.fixture(scope="session")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every name and text tries to break out of the page; read only."""
    folder: Path = _load("sample_run").write_hostile(tmp_path_factory.mktemp("hostile") / "run")
    return folder
