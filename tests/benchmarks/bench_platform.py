"""What the plugin platform costs: a round as called and traced, and `--help` with ten plugins installed.

Run with ``make bench``, or ``python tests/benchmarks/bench_platform.py``. Prints; asserts no timing.
"""

import contextlib
import dataclasses
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import structlog

from combinations.contended import contended
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.testing.drive import Drive
from eunomia.units import Seconds

RUNS = 5
TURNS = 5


def spent(profile: Profile, *, tracing: bool) -> tuple[float, int]:
    """CPU seconds in ``step`` over some runs of a crowded scene, and the rounds that there were."""
    os.environ["EUNOMIA_TRACE_PLUGINS"] = "1" if tracing else "0"
    scene, seconds, rounds = contended(), 0.0, 0
    cluster = Cluster.parse(scene.cluster)
    for _ in range(RUNS):
        stages = profile.stages(cluster)
        served = dataclasses.replace(stages, rounds=dataclasses.replace(stages.rounds, bid_deadline=None))
        arbiter = Arbiter(cluster, served, served)
        step = arbiter.step

        def timed(now: Seconds, events: object = (), step: object = step) -> Decision:
            nonlocal seconds, rounds
            began = time.process_time()
            decision: Decision = step(now, events)  # type: ignore[operator]
            seconds += time.process_time() - began
            rounds += bool(decision.causes)
            return decision

        arbiter.step = timed  # type: ignore[method-assign]
        Drive(arbiter, work=dict(scene.work), keep=False).run(scene.script, until=scene.until)
    return seconds, rounds


def of_a_round(name: str) -> str:
    """The medians of a profile, as called and traced, taken in turns."""
    profile = Profile.load(name, settings={"rounds.lease": "7s"})
    plain, traced = [], []
    spent(profile, tracing=False)
    for _ in range(TURNS):
        seconds, rounds = spent(profile, tracing=False)
        plain.append(seconds / rounds)
        with contextlib.redirect_stdout(io.StringIO()):
            seconds, rounds = spent(profile, tracing=True)
        traced.append(seconds / rounds)
    one, other = statistics.median(plain), statistics.median(traced)
    return (
        f"{name}: {1e6 * one:.0f} µs CPU a round as called, {1e6 * other:.0f} µs with --trace-plugins: "
        f"{other / one:.2f} times"
    )


def of_help(plugins: int) -> str:
    """Wall time of ``eunomia --help`` with so many plugins installed, one of which imports torch."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(plugins):
            install(Path(folder), f"stranger{number}", "import torch" if number == 0 else "import json")
        paths = [folder, os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        took = []
        for _ in range(TURNS):
            began = time.perf_counter()
            command = [sys.executable, "-c", "from eunomia.cli import main; main()", "--help"]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            took.append(time.perf_counter() - began)
        said = sum(f"cheer{number}" in done.stdout for number in range(plugins))
    return (
        f"eunomia --help with {plugins} plugins: median {statistics.median(took):.3f} s, "
        f"best {min(took):.3f} s ({said} commands of theirs listed)"
    )


def install(folder: Path, name: str, line: str) -> None:
    """Put a package with a plugin and a command where Python finds it installed."""
    (folder / f"{name}.py").write_text(f"{line}\n\n\nclass Plugin:\n    name = '{name}'\n    api = 1\n")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    number = name.removeprefix("stranger")
    text = f"[eunomia]\n{name} = {name}:Plugin\n\n[eunomia.commands]\ncheer{number} = {name}:cheer\n"
    (info / "entry_points.txt").write_text(text)


def main() -> None:
    """Print all figures."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(io.StringIO()))
    for name in ("default", "las", "themis"):
        print(of_a_round(name))
    for plugins in (0, 10):
        print(of_help(plugins))


if __name__ == "__main__":
    main()
