"""How long a gang stands still while it grows and shrinks: live, and by a restart from a checkpoint.

    python tests/benchmarks/bench_live_changes.py [--changes 20] [--forked] [--restarts N] [--bursts N] [--kills N]
        [--stops N]

Real workers over gloo, 4.2 million parameters with momentum, newcomers fresh processes (``--forked``: forked from a
process that has imported torch). The stall is from the end of the last old step to the start of the first new one on
all workers, on the machine's clock; the ordinary step is the median of the 20 before the order.
"""

import argparse
import itertools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))
from tests.appmaster.live_lab import LiveJob, live_job  # noqa: E402
from tests.appmaster.training_lab import Job, Lab, Order  # noqa: E402

SCRIPT = ROOT / "tests" / "appmaster" / "live_training_script.py"
LARGE = ("--width", "2048", "--samples", "4096", "--batch-size", "64", "--single", "--no-average", "--no-hash")
SMALL = ("--samples", "200", "--seconds", "0.03")
ENDLESS = ("--steps", "1000000")
SIZES = (1, 2, 4, 3)
BEFORE = 20


class Stall(NamedTuple):
    """One change: sizes, and seconds."""

    change: str
    stall: float
    ordinary: float
    boundary: float
    """From the order to the boundary."""
    lost: float
    """Training lost from the order to the boundary."""


def main() -> None:
    """Print the tables that were asked for."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    options.add_argument("--changes", type=int, default=20, help="of each kind")
    options.add_argument("--forked", action="store_true", help="newcomers are forked from a process with torch")
    options.add_argument("--restarts", type=int, default=0, help="changes of each kind by a restart, cold and forked")
    options.add_argument("--bursts", type=int, default=0, help="bursts of 20 orders within 2 s")
    options.add_argument("--kills", type=int, default=0, help="workers killed by SIGKILL")
    options.add_argument("--stops", type=int, default=0, help="workers stopped by SIGSTOP")
    given = options.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    lab = Lab.shared()
    with tempfile.TemporaryDirectory() as folder:
        if given.changes:
            print_stalls("live", live_stalls(lab, Path(folder) / "live", given.changes, fresh=not given.forked))
        for name in ("cold", "forked") if given.restarts else ():
            stalls = restart_stalls(lab, Path(folder) / name, given.restarts, fresh=name == "cold")
            print_stalls(f"restart, {name}", stalls)
        if given.bursts:
            print_bursts(lab, Path(folder) / "bursts", given.bursts)
        if given.kills or given.stops:
            print_losses(lab, Path(folder) / "losses", given.kills, given.stops)


def print_stalls(title: str, stalls: Iterable[Stall]) -> None:
    print(f"{title:16}{'stall ms':>10}{'p95':>8}{'steps':>8}{'p95':>7}{'step ms':>9}{'to boundary s':>15}{'lost s':>8}")
    by_change: dict[str, list[Stall]] = defaultdict(list)
    for each in stalls:
        by_change[each.change].append(each)
    for change, rows in by_change.items():
        ms = [1e3 * each.stall for each in rows]
        steps = [each.stall / each.ordinary for each in rows]
        ordinary, boundary, lost = (
            statistics.median(values)
            for values in zip(*((each.ordinary, each.boundary, each.lost) for each in rows), strict=True)
        )
        print(
            f"{change:16}{statistics.median(ms):10.1f}{percentile(ms):8.1f}{statistics.median(steps):8.2f}"
            f"{percentile(steps):7.2f}{1e3 * ordinary:9.1f}{boundary:15.2f}{lost:8.2f}",
            flush=True,
        )


def percentile(values: list[float], at: float = 0.95) -> float:
    return sorted(values)[min(len(values) - 1, int(at * len(values)))]


# -- live


def live_stalls(lab: Lab, folder: Path, changes: int, *, fresh: bool) -> list[Stall]:
    made = []
    with live_job(lab, SCRIPT, folder, *LARGE, *ENDLESS, fresh=fresh) as job:
        job.start(SIZES[0])
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        reader = Rows(folder)
        for before, after in [*itertools.pairwise(SIZES), (SIZES[-1], SIZES[0])] * changes:
            wait_for_steps(job, reader, BEFORE + 2)
            ordered = time.monotonic()
            job.order(after)
            told = job.settle()
            wait_for_steps(job, reader, 2)
            made.append(stall_of(reader.rows(), ordered, f"{before} to {after}", int(told["step"])))
    return made


def wait_for_steps(job: LiveJob, reader: "Rows", count: int) -> None:
    goal = max(reader.rows(), default=0) + count
    job.until(lambda: max(reader.rows(), default=0) >= goal, 300.0, "it makes no steps")


class Rows:
    """The steps that workers have written so far, by number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._rows: dict[int, list[dict[str, Any]]] = defaultdict(list)

    def rows(self) -> dict[int, list[dict[str, Any]]]:
        for path in self._folder.glob("steps.*"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole) + len(newline)
            for line in whole.splitlines():
                row = json.loads(line)
                self._rows[row["step"]].append(row)
        return self._rows


def stall_of(rows: dict[int, list[dict[str, Any]]], ordered: float, change: str, step: int) -> Stall:
    """Return the stall between a step, the last of the old gang, and the next one."""
    main = {row["step"]: row for of in rows.values() for row in of if row["rank"] == 0}
    begun = sorted(row["began"] for row in main.values() if row["began"] < ordered)[-BEFORE - 1 :]
    ordinary = statistics.median(later - earlier for earlier, later in itertools.pairwise(begun))
    ended = max(row["ended"] for row in rows[step])
    since = [row for row in main.values() if ordered < row["ended"] <= ended]
    return Stall(
        change,
        max(row["began"] for row in rows[step + 1]) - ended,
        ordinary,
        ended - ordered,
        max(0.0, ended - ordered - ordinary * len(since)),
    )


# -- by a restart


def restart_stalls(lab: Lab, folder: Path, changes: int, *, fresh: bool) -> list[Stall]:
    made = []
    starter = _Fresh() if fresh else lab
    job = Job(starter, SCRIPT, folder, args=(*LARGE, *ENDLESS))  # type: ignore[arg-type]
    reader = Rows(folder)
    before, ordered, last = 0, 0.0, 0
    for size in [*(SIZES * changes), SIZES[0]]:
        job.env = {"EUNOMIA_CONTAINER_ID": f"n{job.incarnation}", "OMP_NUM_THREADS": "1"}

        def suspend_later(launcher: Order) -> None:
            launcher.on_message = lambda message: _suspend(launcher, reader)

        job.run(workers=size, ordered=suspend_later)
        rows = reader.rows()
        if before:
            made.append(stall_of(rows, ordered, f"{before} to {size}", last))
        before, last, ordered = size, max(rows), _suspend.at
    return made


class _Suspend:
    """Orders an incarnation to leave after 22 steps of its own."""

    def __init__(self) -> None:
        self.at = 0.0
        self._launcher: Order | None = None
        self._from = 0

    def __call__(self, launcher: Order, reader: Rows) -> None:
        newest = max(reader.rows(), default=0)
        if launcher is not self._launcher:
            self._launcher, self._from = launcher, newest
        elif newest - self._from >= BEFORE + 2 and self._from >= 0:
            self.at, self._from = time.monotonic(), 10**9
            launcher.give(order="suspend")


_suspend = _Suspend()


class _Fresh:
    """Starts workers as processes that import torch themselves."""

    def __init__(self) -> None:
        self._processes: dict[int, Any] = {}

    def start(self, script: Path, *args: str, env: dict[str, str], cwd: Path, output: Path) -> int:
        import subprocess

        from tests.appmaster.training_lab import PATHS

        with output.open("wb") as to:
            own = {**os.environ, "PYTHONPATH": PATHS, **env}
            made = subprocess.Popen([sys.executable, str(script), *args], env=own, cwd=cwd, stdout=to, stderr=to)
        self._processes[made.pid] = made
        return made.pid

    def wait(self, pid: int) -> int:
        return int(self._processes.pop(pid).wait())


# -- bursts and losses


def print_bursts(lab: Lab, folder: Path, bursts: int) -> None:
    """Print seconds from the last order to its gang: each order replaces the one before, or waits for it."""
    found: dict[str, list[float]] = defaultdict(list)
    chosen = random.Random(11)
    for number in range(bursts):
        sizes = [chosen.randint(1, 4) for _ in range(20)]
        for way in ("replaced", "last after running", "all in turn"):
            with live_job(lab, SCRIPT, folder / f"{number}-{way}", *SMALL, *ENDLESS) as job:
                job.start(2)
                job.until(lambda: job.confirmed, 60.0, "it did not start")
                found[way].append(burst(job, sizes, way))
    for way, seconds in found.items():
        print(f"20 orders in 2 s, {way:20}: {statistics.median(seconds):6.2f} s to the last size (median of {bursts})")


def burst(job: LiveJob, sizes: list[int], way: str) -> float:
    """Give orders every 0.1 s; return seconds from the first one to the last one's gang."""
    began, waiting = time.monotonic(), list(sizes)
    if way == "replaced":
        for number, size in enumerate(sizes):
            job.run_for(max(0.0, began + 0.1 * number - time.monotonic()))
            job.order(size)
    else:
        while waiting:
            due = min(len(sizes), int((time.monotonic() - began) / 0.1) + 1)
            come = due - (len(sizes) - len(waiting))
            if come > 0:
                taken = 1 if way == "all in turn" else come
                job.order(waiting[taken - 1])
                del waiting[:taken]
                job.settle()
            job.run_for(0.01)
    job.settle()
    return time.monotonic() - began


def print_losses(lab: Lab, folder: Path, kills: int, stops: int) -> None:
    """Print seconds until the loss of a worker is seen, and until the next step."""
    chosen = random.Random(7)
    for name, number, count in (("killed", signal.SIGKILL, kills), ("stopped", signal.SIGSTOP, stops)):
        rows = [lose(lab, folder / f"{name}-{each}", chosen, number) for each in range(count)]
        if rows:
            seen, again = ([row[at] for row in rows] for at in range(2))
            texts = [f"{statistics.median(each):.2f} s (longest {max(each):.2f})" for each in (seen, again)]
            print(f"{count} {name}: seen after {texts[0]}, next step after {texts[1]}", flush=True)


def lose(lab: Lab, folder: Path, chosen: random.Random, number: int) -> tuple[float, float]:
    """Lose one of three workers, a stopped one being killed after 2 s; check that the others are equal afterwards."""
    args = ("--width", "700", "--samples", "2048", "--batch-size", "96", *ENDLESS)
    with live_job(lab, SCRIPT, folder, *args) as job:
        job.start(3)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        reader = Rows(folder)
        wait_for_steps(job, reader, 10)
        job.run_for(chosen.uniform(0.0, 0.3))
        name, at, step = chosen.choice(job.newest.members), time.monotonic(), max(reader.rows())
        job.kill(name, number)
        if number == signal.SIGSTOP:
            job.run_for(2.0)
            at = time.monotonic()
            job.kill(name, signal.SIGKILL)
        job.until(lambda: job.said("broken"), 60.0, "nobody has seen it")
        seen = time.monotonic() - at
        told = job.settle()
        wait_for_steps(job, reader, 3)
        after = reader.rows()
        first = min(row["began"] for row in after[int(told["step"]) + 1] if row["size"] == 2)
        if int(told["step"]) < step:
            raise SystemExit(f"steps were lost: {step} was made, and {told['step']} is where it goes on")
        for new in range(int(told["step"]) + 1, max(after)):
            if len({row["hash"] for row in after[new] if row["size"] == 2}) > 1:
                raise SystemExit(f"workers differ after step {new}")
        return seen, first - at


if __name__ == "__main__":
    main()
