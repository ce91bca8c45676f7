"""Settings of all tests: examples of Hypothesis have no deadline, and each test starts with the default logging.

Tests that wait for live processes run first, so that no long test starts last, when no other runs in parallel.
"""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")


LIVE_FIRST = ("end_to_end", "appmaster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts folders of live tests before the others and keeps the order within a folder."""
    places = {name: place for place, name in enumerate(LIVE_FIRST)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(places)))


@pytest.fixture(autouse=True)
def _default_logging() -> Iterator[None]:
    """Resets logging: a test that configures it leaves a closed stream behind."""
    yield
    structlog.reset_defaults()
