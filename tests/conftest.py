"""Settings of all tests: examples of Hypothesis have no deadline, and each test starts with the default logging.

`strength.py` says how many examples they are.

Tests that wait for live processes run first, so that no long test starts last, when no other runs in parallel.
"""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from eunomia import cli
from strength import examples

settings.register_profile("shared", deadline=None, max_examples=examples(100))
settings.load_profile("shared")


LIVE_FIRST = ("end_to_end", "appmaster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts folders of live tests before the others and keeps the order within a folder."""
    places = {name: place for place, name in enumerate(LIVE_FIRST)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(places)))


def pytest_collection_finish() -> None:
    """Excludes modules and tests, which live to the end, from all further garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _default_logging() -> Iterator[None]:
    """Resets logging: a test that configures it leaves a closed stream behind."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in this process; a process for each would take most of a test's time.

    Returns what it wrote to stdout, or to stderr where it is to fail.
    """
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str, check: int = 0) -> str:
        capfd.readouterr()
        code = cli.run(arguments)
        said = capfd.readouterr()
        assert code == check, said.out + said.err
        return said.out if check == 0 else said.err

    return command
