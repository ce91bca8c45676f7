"""What an app of many trials costs: first trial, journal, app master's files and processors, with real processes.

    python tests/benchmarks/bench_trials.py 10000
    python tests/benchmarks/bench_trials.py 10000 --tuner hyperband --beside OLDER_CHECKOUT

`serve` with its launcher, an app master, and workers (`tests/appmaster/tiny_worker.py`) run for a minute after a
warm-up of 15 s; with `--checkpoints` it lasts until the journal has both of its checkpoints. Journal is what the pages
in use of SQLite's file and the archive grow by: the log is emptied again and again, and pages of deleted rows are used
again. CPU is that of the arbiter and of the app master, workers and launcher left out. Prints; asserts no timing.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from eunomia.journal.journal import CHECKPOINTS_KEPT
from eunomia_appmaster.app.master_folders import activity_files

ROOT = Path(__file__).parent.parent.parent
WORKER = ROOT / "tests" / "appmaster" / "tiny_worker.py"
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
TUNERS = {
    "none": "",
    "hyperband": 'kind = "hyperband"\nmin_iterations = 10\n',
    "median_stopping": 'kind = "median_stopping"\n',
}
PATIENCE_SECONDS = 300.0


class LiveApp:
    """`serve` with one app of many trials, in a folder of its own.

    Args:
        folder: for state and app file.
        root: the checkout whose code runs.
        trials: of the app.
        tuner: a key of ``TUNERS``.
        policy: of the arbiter.
    """

    def __init__(self, folder: Path, root: Path, trials: int, tuner: str, policy: str) -> None:
        self.folder, self.trials = folder, trials
        self.state = folder / "state"
        self.env = os.environ | {"PYTHONPATH": os.pathsep.join(str(root / floor) for floor in FLOORS)}
        self.env |= {"EUNOMIA_STATE_DIR": str(self.state), "EUNOMIA_LOG": "info"}
        self._eunomia = [sys.executable, "-c", "from eunomia.cli import main; main()"]
        shutil.copy(WORKER, folder / "train.py")
        command = f"{sys.executable} train.py --seconds 0.05"
        self.file = folder / "search.toml"
        self.file.write_text(
            f'[app]\nname = "search"\n[job]\ncommand = "{command}"\nslots = 1\nmax_iterations = 270\n'
            "[space]\nlr = {type = 'float', low = 0.1, high = 0.5}\n"
            f"[tuner]\n{TUNERS[tuner]}trials = {trials}\nmetric = 'val/accuracy'\nmode = 'max'\n"
        )
        options = ["--slots", "2", "--cpu-only", "--address", "127.0.0.1:0", "--policy", policy]
        self._log = (folder / "serve.log").open("wb")
        self.serve = subprocess.Popen(
            [*self._eunomia, "serve", *options], env=self.env, stdout=self._log, stderr=self._log
        )

    def close(self) -> None:
        """End all processes."""
        left = psutil.Process(self.serve.pid).children(recursive=True) if self.serve.poll() is None else []
        self.serve.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.serve.wait(60)
        for process in (*left, *self._ours()):
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._log.close()

    def submit(self) -> float:
        """Submit the app; return the seconds until its first trial runs."""
        _await(lambda: (self.state / "run" / "address").exists(), "the arbiter is up")
        began = time.monotonic()
        while subprocess.run(
            [*self._eunomia, "submit", str(self.file)], env=self.env, capture_output=True, check=False
        ).returncode:
            time.sleep(0.2)
        _await(lambda: '"running"' in self._activity(), "a trial runs")
        return time.monotonic() - began

    def measure(self, seconds: float) -> dict[str, Any]:
        """Return what arbiter and app master use meanwhile."""
        arbiter, master = self._arbiter(), self._master()
        before = [_used(each) for each in (arbiter, master)]
        journal, began = self._journal_bytes(), time.monotonic()
        started, rows, steps = self._starts(), self._row_bytes(), self._asked("SELECT max(id) FROM steps")
        time.sleep(seconds)
        wall = time.monotonic() - began
        after = [_used(each) for each in (arbiter, master)]
        (arbiter_cpu, arbiter_bytes), (master_cpu, master_bytes) = (
            (late[0] - early[0], late[1] - early[1]) for early, late in zip(before, after, strict=True)
        )
        hour = 3600.0 / wall / 1e6
        return {
            "starts of trials": self._starts() - started,
            "arbiter, cores": arbiter_cpu / wall,
            "app master, cores": master_cpu / wall,
            "steps": self._asked("SELECT max(id) FROM steps") - steps,
            "rows of steps grow, MB/h": (self._row_bytes() - rows) * hour,
            "journal grows, MB/h": (self._journal_bytes() - journal) * hour,
            "journal, MB": self._journal_bytes() / 1e6,
            "SQLite's log, MB": (self.state / "journal.sqlite-wal").stat().st_size / 1e6,
            "arbiter writes, MB/h": arbiter_bytes * hour,
            "app master writes, MB/h": master_bytes * hour,
            "app master, MB": master.memory_info().rss / 1e6,
            "arbiter, MB": arbiter.memory_info().rss / 1e6,
        }

    def spent(self) -> str:
        """Return the CPU seconds that the processes have used since their starts."""
        used = [sum(process.cpu_times()[:2]) for process in (self._arbiter(), self._master())]
        return f"CPU seconds until then: arbiter {used[0]:.1f}, app master {used[1]:.1f}"

    def _starts(self) -> int:
        return sum(json.loads(line)["event"] == "start" for line in self._activity().splitlines())

    def _activity(self) -> str:
        """Return the events of the newest attempt; empty before there are any."""
        newest = activity_files(self.state / "apps" / "search")[-1]
        return newest.read_text() if newest.exists() else ""

    def warm_up(self, *, checkpoints: bool) -> None:
        """Wait for 15 s, and until the journal holds the checkpoints that it keeps."""
        time.sleep(15.0)
        while checkpoints and self._asked("SELECT count(*) FROM checkpoints") < CHECKPOINTS_KEPT:
            time.sleep(1.0)

    def _asked(self, query: str) -> int:
        with contextlib.closing(sqlite3.connect(f"file:{self.state}/journal.sqlite?mode=ro", uri=True)) as database:
            return int(database.execute(query).fetchone()[0] or 0)

    def _journal_bytes(self) -> int:
        pages = self._asked("PRAGMA page_count") - self._asked("PRAGMA freelist_count")
        archive = sum(file.stat().st_size for file in self.state.glob("*archive*/*"))
        return pages * self._asked("PRAGMA page_size") + archive

    def _row_bytes(self) -> int:
        return self._asked("SELECT sum(length(events) + length(decision)) FROM steps")

    def _ours(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("EUNOMIA_STATE_DIR") == str(self.state) or str(self.folder) in " ".join(
                    process.cmdline()
                ):
                    found.append(process)
        return [process for process in found if process.pid != os.getpid()]

    def _arbiter(self) -> psutil.Process:
        children = psutil.Process(self.serve.pid).children()
        return next(process for process in children if "arbiter" in " ".join(process.cmdline()))

    def _master(self) -> psutil.Process:
        """Return the app master that runs; while none does, wait for it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for record in (self.state / "launcher" / "live").glob("*/container.json"):
                with contextlib.suppress(OSError, ValueError, psutil.Error):
                    known = json.loads(record.read_text())
                    if known["slot"] == -1 and known["state"] != "COMPLETED" and known["pid"]:
                        return psutil.Process(known["pid"])
            time.sleep(0.1)
        raise TimeoutError("an app master runs")


def _used(process: psutil.Process) -> tuple[float, int]:
    """Return CPU seconds and bytes written by a process and its threads."""
    times = process.cpu_times()
    return times.user + times.system, process.io_counters().write_chars


def _await(look: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)


def main() -> None:
    """Measure this checkout, and another one after it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("trials", type=int, nargs="*", default=[10_000])
    options.add_argument("--tuner", choices=sorted(TUNERS), default="none")
    options.add_argument("--policy", default="default")
    options.add_argument("--seconds", type=float, default=60.0, help="measured, after a warm-up of 15 s")
    options.add_argument("--checkpoints", action="store_true", help="warm up until the journal has both checkpoints")
    options.add_argument("--beside", type=Path, help="root of another checkout, measured too")
    chosen = options.parse_args()
    roots = [ROOT, *([chosen.beside.resolve()] if chosen.beside else [])]
    for trials in chosen.trials:
        for root in roots:
            with tempfile.TemporaryDirectory(prefix="eunomia-trials-", ignore_cleanup_errors=True) as folder:
                app = LiveApp(Path(folder), root, trials, chosen.tuner, chosen.policy)
                with contextlib.ExitStack() as stack:
                    stack.callback(app.close)
                    first = app.submit()
                    print(f"{root}: {trials} trials, {chosen.tuner}: first trial after {first:.1f} s", flush=True)
                    print(f"  {app.spent()} (load {os.getloadavg()[0]:.1f})", flush=True)
                    app.warm_up(checkpoints=chosen.checkpoints)
                    for name, figure in app.measure(chosen.seconds).items():
                        print(f"  {name:26} {figure:10.3f}", flush=True)


if __name__ == "__main__":
    main()
