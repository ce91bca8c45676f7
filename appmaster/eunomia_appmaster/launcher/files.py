"""Small JSON files that are written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, content: dict[str, Any], *, sync: bool = False) -> None:
    """Replace ``path``, readable by its owner alone; ``sync`` waits until it would survive a power cut."""
    beside = path.with_name(f"{path.name}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(content, file)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    beside.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read what ``write_json`` wrote; None if there is no such file."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return content
