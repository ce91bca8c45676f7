"""The memory page on which a simulation records the current plugin call; another process can read it."""

import contextlib
import mmap
import os
import tempfile
from typing import Final

SIZE: Final = 4096
NUMBERS: Final = 24
"""Size in bytes of the three 8-byte numbers; the rest of the page is text."""


class CallPage:
    """A memory page, private to this process or mapped from a file that several processes share.

    Attributes:
        numbers: the number of the current call (0: none), the code of its plugin, and its round.

    Args:
        file: the descriptor of the shared file; None: memory of this process.
    """

    def __init__(self, file: int | None = None) -> None:
        self._memory = mmap.mmap(-1 if file is None else file, SIZE)
        self.numbers = memoryview(self._memory)[:NUMBERS].cast("q")

    def begin(self, place: str) -> None:
        """Clear the page, and record the policy and the seed of the simulation that begins."""
        self._memory[:] = bytes(SIZE)
        self._write(f"{place}\n")

    def add(self, plugin: str, what: str) -> int:
        """Register a plugin and the purpose of its calls; return the code of the pair, or 0 if the page is full."""
        return self._write(f"{plugin}\t{what}\n")

    def place(self) -> str:
        """Return policy, seed and round of the current call as text."""
        return f"{self._lines()[0]}, round {self.numbers[2]}"

    def call(self) -> tuple[str, str]:
        """Return the plugin and the purpose of the current call."""
        lines, code = self._lines(), self.numbers[1]
        if not 0 < code < len(lines):
            return "a plugin", "unknown"
        plugin, _, what = lines[code].partition("\t")
        return plugin, what

    def _write(self, line: str) -> int:
        text, added = self._text(), line.encode()
        if len(text) + len(added) > SIZE - NUMBERS:
            return 0
        self._memory[NUMBERS + len(text) : NUMBERS + len(text) + len(added)] = added
        return text.count(b"\n")

    def _lines(self) -> list[str]:
        return self._text().decode(errors="replace").split("\n")

    def _text(self) -> bytes:
        return bytes(self._memory[NUMBERS:]).rstrip(b"\0")


def shared_file() -> int:
    """Return the descriptor of a one-page file that child processes can inherit."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("eunomia-calls")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    with contextlib.suppress(OSError):
        os.ftruncate(file, SIZE)
    return file
