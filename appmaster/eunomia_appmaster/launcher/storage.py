"""Checks whether this node sees the arbiter's storage: it reads a file that the arbiter has written."""

import asyncio
import hashlib
from pathlib import Path
from typing import Final

READ_SECONDS: Final = 10.0
MOST_BYTES: Final = 4096


async def read_back(apps: Path, file: str) -> tuple[str, str]:
    """Return the SHA-256 of the arbiter's file and an empty text, or an empty text and why it cannot be read.

    Args:
        apps: the folder, at its path on this node.
        file: path below it, from the arbiter; empty: nothing is to be read, and both results are empty.
    """
    if not file:
        return "", ""
    path = apps / file
    if not path.resolve().is_relative_to(apps.resolve()):
        return "", f"the arbiter's file {file[:100]} is not in it"
    try:
        content = await asyncio.wait_for(asyncio.to_thread(_read, path), READ_SECONDS)
    except TimeoutError:
        return "", f"it did not answer within {READ_SECONDS:.0f} s"
    except FileNotFoundError:
        return "", "the arbiter's file is not in it" if apps.is_dir() else "there is no such folder"
    except OSError as error:
        return "", error.strerror or str(error)
    return hashlib.sha256(content).hexdigest(), ""


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES)
