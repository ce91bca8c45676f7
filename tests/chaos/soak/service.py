"""A service under arrivals, kills and cancels: ``python -m chaos.soak``."""

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from chaos.soak.samples import SAMPLE_SECONDS, SAMPLES, Samples, of_machine, of_process
from chaos.storms.targets import containers, of_folder
from eunomia.errors import EunomiaError
from eunomia_appmaster import Client
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.launcher.processes import identify
from eunomia_appmaster.node.supervisor import Serving, Supervisor
from eunomia_testbed.live_runs.live_run import OVER

ROOT: Final = Path(__file__).parent.parent.parent.parent
WORKER: Final = ROOT / "tests" / "appmaster" / "tiny_worker.py"
SLOTS: Final = 4
ARRIVALS: Final = (2.0, 8.0)
"""Seconds between two apps."""
DISTURBANCES: Final = (5.0, 15.0)
"""Seconds between two kills or cancels."""
MOST_LIVE: Final = 6
ITERATIONS: Final = (100, 800)
KEPT_APPS: Final = 50
REMEMBERED_SECONDS: Final = 60
CLEAN_SECONDS: Final = 60.0
APP: Final = """
[app]
name = "app"
[job]
command = "python train.py --seconds 0.01{more}"
slots = 1
max_iterations = {iterations}
retries = 100
checkpoint_every = "2s"
"""


class Soak:
    """A service, and what is done to it.

    Args:
        folder: of the state; new.
        chance: draws apps, victims and moments.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._chance = chance
        self._folder = folder
        shutil.copy(WORKER, folder / "train.py")
        self._made = Supervisor(
            folder / "state",
            Serving(
                slots=SLOTS, cpu_only=True, address="127.0.0.1:0", log_dir=folder / "log",
                arbiter_options=("--keep-apps", str(KEPT_APPS), "--journal-segment-steps", "200"),
                launcher_options=("--keep-seconds", str(REMEMBERED_SECONDS), "--stop-seconds", "2"),
            ),
        )  # fmt: skip
        self.counts = Counter[str]()
        self.samples = Samples()
        self.states = Counter[str]()
        self._cancelled: set[str] = set()
        self._seconds = 0.0

    def run(self, seconds: float) -> list[str]:
        """Let it go on for so long; return what is wrong."""
        self._seconds, began = seconds, time.monotonic()
        due = dict.fromkeys((self._arrive, self._disturb, self._clean, self._sample), 0.0)
        with self._made, Client(self._made.address, token_file=self._made.token_file) as client:
            while (now := time.monotonic() - began) < seconds:
                for work in due:
                    if now >= due[work]:
                        due[work] = now + self._after(work)
                        with contextlib.suppress(EunomiaError):
                            work(client, now)
                time.sleep(0.2)
            lost = self._drain(client)
        wrong = [f"{app} is {state}" for app, state in lost.items()]
        wrong += [str(finding) for finding in check_folder(self._made.state_dir, over=True).findings]
        return wrong + [f"{each} is left" for each in of_folder(self._made.state_dir)]

    def _after(self, work: object) -> float:
        spans = {self._arrive: ARRIVALS, self._disturb: DISTURBANCES}
        if work in spans:
            return self._chance.uniform(*spans[work])
        return CLEAN_SECONDS if work == self._clean else min(SAMPLE_SECONDS, self._seconds / SAMPLES)

    def _arrive(self, client: Client, now: float) -> None:
        if len(_live(client)) >= MOST_LIVE:
            return
        plain = " --plain" if self._chance.random() < 0.2 else ""
        text = APP.format(more=plain, iterations=self._chance.randint(*ITERATIONS))
        client.submit(self._folder / "app.toml", text=text)
        self.counts["arrived"] += 1

    def _disturb(self, client: Client, now: float) -> None:
        """Kill a worker or an app master, or cancel an app."""
        live = list(containers(self._made.state_dir))
        what = self._chance.choice(("worker", "app master", "cancel"))
        if what == "cancel":
            names = _live(client)
            if names:
                name = self._chance.choice(names)
                client.cancel(name)
                self._cancelled.add(name)
                self.counts["cancelled"] += 1
            return
        mine = [process for _, slot, process, _ in live if (slot < 0) == (what == "app master")]
        if mine and self._chance.choice(mine).signal(self._chance.choice((signal.SIGKILL, signal.SIGTERM))):
            self.counts[f"{what}s killed"] += 1

    def _clean(self, client: Client, now: float) -> None:
        """Remove the folders of apps that ended a minute ago."""
        command = [str(Path(sys.executable).with_name("eunomia")), "clean", "--older-than", "1m", "--yes"]
        done = subprocess.run([*command, "--state-dir", str(self._made.state_dir)], capture_output=True, check=False)
        self.counts["cleaned" if done.returncode == 0 else "clean failed"] += 1

    def _sample(self, client: Client, now: float) -> None:
        found = of_machine(self._made.state_dir)
        for child in (self._made.arbiter, self._made.launcher):
            process = None if child is None or child.pid is None else identify(child.pid)
            if child is not None and process is not None:
                found |= of_process(child.name, process)
        self.samples.add(now, found)

    def _drain(self, client: Client) -> dict[str, str]:
        """Wait for the end of all apps; return those that ended otherwise than they should."""
        deadline = time.monotonic() + 300.0
        while time.monotonic() < deadline:
            with contextlib.suppress(EunomiaError):
                if not _live(client):
                    break
            time.sleep(1.0)
        ended = {app.app: app.state for app in client.list(ended=True).apps}
        self.states = Counter(ended.values())
        good = {"finished", "cancelled"}
        return {
            app: state
            for app, state in ended.items()
            if state not in good or (state == "cancelled" and app not in self._cancelled)
        }


def _live(client: Client) -> list[str]:
    return sorted(app.app for app in client.list().apps if app.state not in OVER)
