"""An arbiter of three slots; apps with fewer iterations take a search's slots: 1 -> 3 -> 0 -> 2. Not a test."""

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
PATIENCE_SECONDS = 240.0
"""On a machine with much to do, a Ray node starts within a minute or two."""
PLUGIN = Path(__file__).with_name("fewest_iterations.py")
POLICY = """
extends = "default"

[stages]
valuation = "fewest_iterations"

[plugins.ordered]
preemptive = true
"""


class Leases:
    """Three slots; the app with the fewest iterations has them first."""

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
        eventually(lambda: self.arbiter.app(app).slots == slots, f"{app} has {slots} slots", PATIENCE_SECONDS)
        self.note(f"{app} has {slots} slots")

    def note(self, text: str) -> None:
        self.seen.append(f"{time.monotonic() - self._began:.1f} s: {text}")

    def breathe(self, app: str, progress: Callable[[], int], uses: Callable[[], int] | None = None) -> None:
        """Let a search have 1, 3, 0 and 2 slots, each until its trials have made some more progress.

        Args:
            app: the search's.
            progress: counts what its trials have done.
            uses: the number of slots that the search itself sees; None: it sees none.
        """
        self._goes_on(app, 1, progress, uses)
        self.end("two")
        self._goes_on(app, 3, progress, uses)
        self.take("all", 3)
        self.wait(app, 0)
        before = progress()
        time.sleep(3.0)
        assert progress() <= before + 3, "nothing goes on without slots, but what was under way"
        self.take("one", 1)
        self.end("all")
        self._goes_on(app, 2, progress, uses)
        self.end("one")

    def _goes_on(self, app: str, slots: int, progress: Callable[[], int], uses: Callable[[], int] | None) -> None:
        self.wait(app, slots)
        if uses is not None:
            eventually(lambda: uses() == slots, f"the search uses {slots} slots", PATIENCE_SECONDS)
            self.note(f"the search uses {slots} slots")
        before = progress()
        eventually(lambda: progress() >= before + 4, "its trials go on", PATIENCE_SECONDS)

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
            thread.join(3 * PATIENCE_SECONDS)
        if self.fault is not None:
            raise self.fault


@contextmanager
def leases(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leases]:
    """An arbiter on which another app has two of the three slots."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EUNOMIA_PLUGIN_PATH", str(PLUGIN))
    (folder / "fewest.toml").write_text(POLICY)
    with supervisor(folder, slots=SLOTS, policy=str(folder / "fewest.toml")) as served, client(served) as arbiter:
        eventually(lambda: ready(arbiter), "the arbiter")
        made = Leases(folder, served, arbiter)
        made.take("two", 2)
        eventually(lambda: arbiter.app("two").slots == 2, "another app has two slots")
        yield made
        for line in made.seen:
            os.write(2, f"{line}\n".encode())
