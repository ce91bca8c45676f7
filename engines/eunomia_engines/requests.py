"""Common parts of the engines' requests: the number of nodes, the mark of a state folder, and the request's file."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from eunomia.errors import InputError
from eunomia_appmaster.node.private_files import write_private

REQUEST: Final = "request.json"
"""Name of the request's file in the engine's folder."""


def mark_of(state: Path) -> str:
    """Return eight hexadecimal digits that identify a state folder in the names of its jobs."""
    return hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:8]


def nodes_range(text: str) -> tuple[int, int]:
    """Parse ``--nodes`` (``4`` or ``2..8``) to the minimum and maximum number of nodes.

    Raises:
        InputError: the text has another form, or a bound is below 1.
    """
    found = re.fullmatch(r"(\d{1,5})(?:\.\.(\d{1,5}))?", text.strip())
    least, most = (int(found.group(1)), int(found.group(2) or found.group(1))) if found else (0, 0)
    if not 1 <= least <= most:
        rule = "--nodes must be a number from 1, or a range from the least to the most, such as 2..8"
        raise InputError(rule, value=f'"{text}"')
    return least, most


def save_request(folder: Path, request: BaseModel) -> None:
    """Write a request below an engine's folder."""
    write_private(folder / REQUEST, request.model_dump_json(indent=1).encode(), sync=True)


def load_request(folder: Path, of: str, place: Path) -> dict[str, Any]:
    """Return the fields of the request below an engine's folder.

    Args:
        folder: the engine's folder.
        of: the command that writes the request, for the error.
        place: the state folder, for the error.

    Raises:
        InputError: there is no request, or it cannot be read.
    """
    path = folder / REQUEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"a state folder must be one of `{of}`", value=str(place)) from None
    except (ValueError, OSError) as error:
        raise unreadable(folder, error) from None
    if not isinstance(found, dict):
        raise unreadable(folder, TypeError("no object"))
    return found


def unreadable(folder: Path, error: Exception) -> InputError:
    """Return the error for a damaged request."""
    return InputError("the request must be readable", value=str(error)[:200], place=str(folder / REQUEST))
