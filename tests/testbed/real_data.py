"""Public traces and profiles that tests may use where they are: beside the project, never in it."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"


def shared_data(name: str) -> Path:
    """Where a file or folder of the public data is; skips the test where it is absent."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"../shared/data/{name} is not here: it is public data, kept outside the project")
    return path
