"""Runs writers side by side, one file operation at a time, in an order that a test draws; ends some between two.

Not a test. Each writer is a thread that waits before each operation on a file: Python reports them all, before they are
done, to audit hooks. So the product's code runs unchanged, on a real folder.
"""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CHANGES: Final = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.symlink"}
LOOKS: Final = {"os.scandir", "os.listdir"}
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class CrashError(BaseException):
    """A writer ends here, and does nothing more, as after SIGKILL."""


@dataclass
class Operation:
    """An operation that a writer is about to do, and changes something by."""

    writer: int
    what: str
    paths: tuple[Path, ...]


@dataclass
class Interleaving:
    """The writers of one example.

    Attributes:
        folder: operations elsewhere do not count.
        look: called before each change; the writers stand still meanwhile.
    """

    folder: Path
    look: Callable[[Operation], None] = lambda operation: None
    errors: list[BaseException] = field(default_factory=list)
    _turns: list[threading.Semaphore] = field(default_factory=list)
    _back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _crashed: set[int] = field(default_factory=set)
    _over: set[int] = field(default_factory=set)

    def run(self, works: Sequence[Callable[[], None]], choices: Sequence[int], crashes: dict[int, int]) -> None:
        """Run all to their ends.

        Args:
            works: of the writers.
            choices: which of the live writers makes the next operation; after the last choice, the first of them.
            crashes: by writer, the number of operations after which it crashes.
        """
        self._turns = [threading.Semaphore(0) for _ in works]
        threads = [
            threading.Thread(target=self._work, args=(number, work), daemon=True) for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        made = [0] * len(works)
        draws = iter(choices)
        while live := [number for number in range(len(works)) if number not in self._over]:
            chosen = live[next(draws, 0) % len(live)]
            if made[chosen] >= crashes.get(chosen, sys.maxsize):
                self._crashed.add(chosen)
            made[chosen] += 1
            self._turns[chosen].release()
            self._back.acquire()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _work(self, number: int, work: Callable[[], None]) -> None:
        self._turns[number].acquire()
        _HERE.scene, _HERE.number = self, number
        try:
            work()
        except CrashError:
            pass
        except BaseException as error:
            if number not in self._crashed:
                self.errors.append(error)
        finally:
            _HERE.scene = None
            self._over.add(number)
            self._back.release()

    def before(self, number: int, event: str, arguments: tuple[Any, ...]) -> None:
        """Wait for the next turn, and show the change."""
        if number in self._crashed:
            raise CrashError
        self._back.release()
        self._turns[number].acquire()
        if number in self._crashed:
            raise CrashError
        if event not in LOOKS and not (event == "open" and not _writes(arguments)):
            paths = tuple(Path(os.fsdecode(each)) for each in arguments if isinstance(each, str | bytes | os.PathLike))
            _HERE.scene = None
            try:
                self.look(Operation(number, event, tuple(path for path in paths if path.is_absolute())))
            finally:
                _HERE.scene = self


class _Here(threading.local):
    scene: Interleaving | None = None
    number = 0


_HERE = _Here()


def _writes(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    return bool(flags & _WRITING)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in CHANGES and event not in LOOKS and event != "open":
        return
    scene = _HERE.scene
    if scene is None or not arguments or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    if os.fsdecode(arguments[0]).startswith(str(scene.folder)):
        scene.before(_HERE.number, event, arguments)


sys.addaudithook(_hook)
