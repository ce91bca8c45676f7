"""Slot time that resizes cost under a policy that changes sizes often: live, or by restarts.

    python tests/benchmarks/bench_live_slot_time.py [--mode live|restart] [--policy coddl] [--seconds 150] [--seed 3]

A real arbiter with four CPU slots; jobs of a training script arrive in the first part of the run, and each worker's
steps are logged. Lost is: from a worker's start to its first step (but for those with which a job begins), from its
last step to its end, and what two steps of different sizes are further apart than others.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))
from tests.appmaster.serving_lab import FLOORS, activity, client, supervisor  # noqa: E402

from eunomia_appmaster import Client  # noqa: E402
from eunomia_appmaster.journal_check import check_folder  # noqa: E402
from eunomia_appmaster.node.supervisor import Supervisor  # noqa: E402

SLOTS = 4
FIRST_SECONDS = 3.0
"""Workers that start so soon after a job's first one belong to its beginning."""


class Job(NamedTuple):
    """A job of the run: when it is submitted (seconds), its steps, its largest size."""

    at: float
    steps: int
    most: int


def main() -> None:
    """Run, and print what was lost."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    options.add_argument("--mode", choices=("live", "restart"), default="live")
    options.add_argument("--policy", default="coddl")
    options.add_argument("--seconds", type=float, default=150.0)
    options.add_argument("--seed", type=int, default=3)
    given = options.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / floor) for floor in FLOORS)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "tests" / "appmaster" / "live_training_script.py", folder / "train.py")
        options_of_launcher = ("--stop-seconds", "4")
        with (
            supervisor(folder, policy=given.policy, slots=SLOTS, launcher_options=options_of_launcher) as made,
            client(made) as arbiter,
        ):
            names = run(folder, arbiter, jobs(given.seconds, given.seed), given.mode)
            findings = check_folder(made.state_dir).findings
            print_lost(folder, made, names, f"{given.mode}, {given.policy}")
    print(f"load {os.getloadavg()[0]:.1f}; the journal's checker finds {len(findings)} faults")


def jobs(seconds: float, seed: int) -> list[Job]:
    """Two jobs at the start, and others in the first 60 % of the run."""
    rng = random.Random(seed)
    more = [
        Job(rng.uniform(0.0, 0.6 * seconds), rng.choice((300, 600, 1200)), rng.choice((2, 4)))
        for _ in range(int(seconds / 25.0))
    ]
    return [Job(0.0, 2500, 4), Job(1.0, 1500, 4), *sorted(more)]


def run(folder: Path, arbiter: Client, plan: list[Job], mode: str) -> list[str]:
    """Submit the jobs and wait until all have finished; returns their names."""
    began, names = time.monotonic(), list[str]()
    elastic = "elastic = 'live'\n" if mode == "live" else ""
    while len(names) < len(plan) or any(arbiter.app(name).state != "finished" for name in names):
        job = plan[len(names)] if len(names) < len(plan) else None
        if job is not None and time.monotonic() - began >= job.at:
            name = f"j{len(names)}"
            command = f"{sys.executable} train.py --steps {job.steps} --seconds 0.05 --no-hash"
            table = f"slots = {{ min = 1, max = {job.most} }}\nmax_iterations = {job.steps}\n{elastic}"
            (folder / f"{name}.toml").write_text(f"[app]\nname = '{name}'\n[job]\ncommand = '{command}'\n{table}")
            arbiter.submit(folder / f"{name}.toml")
            names.append(name)
        time.sleep(0.3)
    return names


def print_lost(folder: Path, made: Supervisor, names: list[str], title: str) -> None:
    """Print slot seconds by cause, and how many a change has cost."""
    causes = dict.fromkeys(("start to first step", "last step to end", "standing still"), 0.0)
    changes, life = 0, 0.0
    for name in names:
        events = [line["event"] for line in activity(made, name)]
        changes += events.count("resized") + events.count("start") - 1
        for lived, *lost in workers(folder, made.state_dir / "apps" / name / "1" / "containers"):
            life += lived
            causes = {cause: before + more for (cause, before), more in zip(causes.items(), lost, strict=True)}
    lost = sum(causes.values())
    parts = ", ".join(f"{cause} {seconds:.1f}" for cause, seconds in causes.items())
    print(f"{title}: {len(names)} jobs, {changes} changes; {lost:.1f} slot s lost ({parts})")
    print(f"{lost / max(1, changes):.2f} slot s a change, {100.0 * lost / life:.1f} % of the workers' {life:.0f} s")


def workers(folder: Path, containers: Path) -> Iterator[tuple[float, float, float, float]]:
    """Yield of each worker of a job: seconds that it lived, and those lost by cause."""
    offset = time.time() - time.monotonic()
    found = {one.name: _times(one) for one in containers.iterdir() if not one.name.startswith("store:")}
    first = min(began for began, _ in found.values())
    for name, (began, ended) in found.items():
        rows = _rows(folder / f"steps.{name}")
        if not rows:
            yield ended - began, ended - began, 0.0, 0.0
            continue
        start = rows[0]["began"] + offset - began if began > first + FIRST_SECONDS else 0.0
        yield ended - began, start, max(0.0, ended - rows[-1]["ended"] - offset), _standing(rows)


def _times(container: Path) -> tuple[float, float]:
    worker, end = (json.loads((container / name).read_text()) for name in ("worker.json", "exit.json"))
    return float(worker["started_at"]), float(end["ended_at"])


def _rows(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _standing(rows: list[dict[str, Any]]) -> float:
    gaps = [(later["began"] - row["ended"], row["size"] != later["size"]) for row, later in itertools.pairwise(rows)]
    usual = statistics.median(gap for gap, _ in gaps) if gaps else 0.0
    return sum(gap - usual for gap, resized in gaps if resized)


if __name__ == "__main__":
    main()
