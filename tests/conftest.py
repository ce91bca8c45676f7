"""What holds for all tests: nobody is judged by how long an example took, and logs go where they went before.

Files whose tests wait for live processes come first, so that no long one is begun last, when nothing runs beside it.
"""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")


LIVE_FIRST = ("end_to_end", "appmaster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put folders of live tests before the others; within a folder nothing changes."""
    places = {name: place for place, name in enumerate(LIVE_FIRST)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(places)))


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A test that configures logging leaves its stream behind, which is closed by then."""
    yield
    structlog.reset_defaults()
