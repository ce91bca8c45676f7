"""What holds for all tests: nobody is judged by how long an example took, and logs go where they went before."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A test that configures logging leaves its stream behind, which is closed by then."""
    yield
    structlog.reset_defaults()
