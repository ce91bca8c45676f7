"""An arbiter of three slots on which apps with less work left take a search's slots: 1 -> 3 -> 0 -> 2. Not a test."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.appmaster.serving_lab import client, eventually, ready, supervisor, tiny_app

from eunomia_appmaster import Client
from eunomia_appmaster.node.supervisor import Supervisor

SLOTS = 3


class Leases:
    """Three slots; the app with the least time left has them first."""

    def __init__(self, folder: Path, served: Supervisor, arbiter: Client) -> None:
        self.folder, self.served, self.arbiter = folder, served, arbiter
        self.seen: list[str] = []
        """What was seen, with seconds since the start."""
        self.fault: BaseException | None = None
        self._began = time.monotonic()

    @property
    def connection(self) -> dict[str, object]:
        """How a client finds the arbiter."""
        return {"address": self.served.address, "token_file": self.served.token_file}

    def take(self, name: str, slots: int) -> None:
        """Let another app take slots; it has a minute of work."""
        hurry = self.folder / f"{name}.end"
        file = tiny_app(self.folder, name, iterations=200, seconds=0.3, more=f" --hurries-after {hurry}")
        file.write_text(file.read_text().replace("slots = 1", f"slots = {slots}"))
        self.arbiter.submit(file)

    def end(self, name: str) -> None:
        """End another app."""
        (self.folder / f"{name}.end").touch()

    def wait(self, app: str, slots: int) -> None:
        """Wait until an app has so many slots."""
        eventually(lambda: self.arbiter.app(app).slots == slots, f"{app} has {slots} slots")
        self.note(f"{app} has {slots} slots")

    def note(self, text: str) -> None:
        self.seen.append(f"{time.monotonic() - self._began:.1f} s: {text}")

    def breathe(self, app: str, progress: Callable[[], int]) -> None:
        """Let a search have 1, 3, 0 and 2 slots, each until its trials have made some more progress."""
        self.wait(app, 1)
        self._goes_on(progress)
        self.end("two")
        self.wait(app, 3)
        self._goes_on(progress)
        self.take("all", 3)
        self.wait(app, 0)
        before = progress()
        time.sleep(3.0)
        assert progress() <= before + 3, "nothing goes on without slots, but what was under way"
        self.take("one", 1)
        self.end("all")
        self.wait(app, 2)
        self._goes_on(progress)
        self.end("one")

    @staticmethod
    def _goes_on(progress: Callable[[], int]) -> None:
        before = progress()
        eventually(lambda: progress() >= before + 4, "its trials go on")

    @contextmanager
    def beside(self, scene: Callable[[], None]) -> Iterator[None]:
        """Run a scene in a thread beside the search, and raise what fails in it."""

        def play() -> None:
            try:
                scene()
            except BaseException as fault:  # raised below
                self.fault = fault
                for name in ("two", "all", "one"):
                    self.end(name)

        thread = threading.Thread(target=play)
        thread.start()
        try:
            yield
        finally:
            thread.join(200.0)
        if self.fault is not None:
            raise self.fault


@contextmanager
def leases(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leases]:
    """An arbiter on which another app has two of the three slots."""
    monkeypatch.chdir(folder)
    with supervisor(folder, slots=SLOTS, policy="srtf") as served, client(served) as arbiter:
        eventually(lambda: ready(arbiter), "the arbiter")
        made = Leases(folder, served, arbiter)
        made.take("two", 2)
        eventually(lambda: arbiter.app("two").slots == 2, "another app has two slots")
        yield made
        for line in made.seen:
            os.write(2, f"{line}\n".encode())
