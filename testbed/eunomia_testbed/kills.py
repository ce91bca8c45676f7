"""``python -m eunomia_testbed.kills``: live runs in which workers, app masters and the arbiter are killed.

Each victim gets SIGKILL at a random moment. Afterwards it is held against the journal, the workers' own files and what
they logged that every app finished, that no slot had two holders, and that no kill cost more than the work since the
last checkpoint. Exit code 1 where any of this does not hold. The seed of the moments is printed.
"""

import argparse
import dataclasses
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eunomia.errors import EunomiaError
from eunomia.logs import configure_logs
from eunomia_testbed.demo.apps_of_demo import AppSource, app_sources
from eunomia_testbed.demo.live_run import LiveRun
from eunomia_testbed.demo.logged import LOSS, read_logs
from eunomia_testbed.demo.outcome import held_twice
from eunomia_testbed.demo.record import LiveRecord

KINDS = ("worker", "app master", "arbiter")
CHECKPOINT_SECONDS = 2.0
SLACK_SECONDS = 1.5
"""What writing a checkpoint and noticing that one is due may take on a busy machine."""
FIRST_KILL = (1.0, 3.0)
PAUSE = (2.0, 5.0)
"""Seconds between two kills, and between the first training step and the first kill."""
LIMIT_SECONDS = 170.0
_SIZES = {"cnn-halving": (4, 160), "mlp-halving": (4, 160), "random": (2, 160), "single": (1, 240)}
"""Trials and iterations of the smaller apps."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A process that was killed; ``at`` counts from the run's start."""

    kind: str
    victim: str
    pid: int
    at: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Work that a job did again after an end without a checkpoint."""

    job: str
    incarnation: int
    steps: int
    seconds: float
    """That these steps had taken."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KillRun:
    """A run with kills, and what it came to."""

    kills: tuple[Kill, ...]
    asked: int
    """How many processes were to be killed."""
    seconds: float
    states: dict[str, str]
    held_twice: tuple[str, ...]
    losses: tuple[Loss, ...]
    restarts: int
    """Of the arbiter."""

    @property
    def wrong(self) -> list[str]:
        """What should not be."""
        ends = [f"{app} is {state}, not finished" for app, state in self.states.items() if state != "finished"]
        most = CHECKPOINT_SECONDS + SLACK_SECONDS
        lost = [
            f"{loss.job} lost {loss.steps} steps, {loss.seconds:.1f} s of work, with {CHECKPOINT_SECONDS:g} s between "
            f"checkpoints"
            for loss in self.losses
            if loss.seconds > most
        ]
        missed = [f"{self.asked - len(self.kills)} kills came too late"] if len(self.kills) < self.asked else []
        return [*ends, *self.held_twice, *lost, *missed]


def small_apps(names: Sequence[str] = tuple(_SIZES)) -> list[AppSource]:
    """The demo's apps, cut to some seconds each."""
    made = []
    for source in app_sources():
        name = source.path.stem
        if name in names:
            trials, iterations = _SIZES[name]
            source = source.with_setting("max_iterations", iterations).with_setting("trials", trials)
            made.append(source.with_setting("checkpoint_every", f'"{CHECKPOINT_SECONDS:g}s"'))
    return made


def kill_run(folder: Path, kinds: Sequence[str], luck: random.Random, *, limit: float = LIMIT_SECONDS) -> KillRun:
    """Run the small apps, and kill one process of each kind, in this order.

    Args:
        folder: of the run; new.
        kinds: of ``KINDS``.
        luck: chooses victims and moments.
        limit: seconds for the whole.

    Raises:
        EunomiaError: it did not end in time.
    """
    began = time.time()
    left, kills = list(kinds), []
    run = LiveRun(folder, small_apps(), seed=luck.randrange(2**31), cpu_only=True)
    try:
        run.start()
        run.submit()
        next_at = None
        while not run.is_over:
            if time.time() - began > limit:
                raise EunomiaError(
                    f"a run with kills must end within {limit:.0f} s", value=f"{left} left", place=str(folder)
                )
            run.look()
            now = time.time()
            if next_at is None and any(line.event == "running" for line in run.record.lines):
                next_at = now + luck.uniform(*FIRST_KILL)
            if left and next_at is not None and now >= next_at:
                kill = _kill(left[0], run, luck, now - began)
                if kill is not None:
                    kills.append(kill)
                    left.pop(0)
                    next_at = now + luck.uniform(*PAUSE)
            time.sleep(luck.uniform(0.05, 0.25))
    finally:
        run.stop()
    arbiter = run.supervisor.arbiter
    return KillRun(
        kills=tuple(kills),
        asked=len(kinds),
        seconds=time.time() - began,
        states={app: life.state for app, life in run.record.apps.items()},
        held_twice=held_twice(run.record),
        losses=tuple(losses(run.record)),
        restarts=0 if arbiter is None else arbiter.restarts,
    )


# -- victims


def _kill(kind: str, run: LiveRun, luck: random.Random, at: float) -> Kill | None:
    """Kill a process of a kind, chosen at random; None where there is none just now."""
    found = dict(_victims(kind, run))
    if not found:
        return None
    victim = luck.choice(sorted(found))
    try:
        os.kill(found[victim], signal.SIGKILL)
    except ProcessLookupError:
        return None
    return Kill(kind=kind, victim=victim, pid=found[victim], at=round(at, 2))


def _victims(kind: str, run: LiveRun) -> Iterator[tuple[str, int]]:
    """Names and pids of the processes of a kind that live now; of workers those that train."""
    if kind == "arbiter":
        arbiter = run.supervisor.arbiter
        if arbiter is not None and arbiter.pid is not None:
            yield "arbiter", arbiter.pid
        return
    for container in (run.folder / "launcher" / "live").glob("*"):
        record = _json(container / "container.json")
        worker = _json(container / "worker.json")
        if record is None or worker is None or (container / "exit.json").exists():
            continue
        is_master = record["slot"] < 0
        trains = bool(record["status"].get("hello"))
        if is_master == (kind == "app master") and (is_master or trains) and _lives(worker):
            yield container.name, int(worker["pid"])


def _lives(worker: dict[str, Any]) -> bool:
    """Whether the process of that pid is still the one that was started then."""
    try:
        text = Path(f"/proc/{worker['pid']}/stat").read_text()
    except OSError:
        return False
    return int(text[text.rindex(")") + 2 :].split()[19]) == int(worker["start_time"])


# -- what was lost


def losses(record: LiveRecord) -> Iterator[Loss]:
    """Every resume that did steps again: how many, and how long they had taken.

    A killed worker's last steps may not have reached its log any more, but it told them to its launcher, at most a
    second before.
    """
    for folder in sorted(record.folder.glob("apps/*/[0-9]*")):
        logs = read_logs(folder)
        reached, each = 0, 0.0
        for incarnation, told, seconds in _told(folder):
            steps = logs.as_written(LOSS, writer=incarnation) if incarnation in logs.writers() else None
            began = int(steps.step.min()) - 1 if steps is not None and len(steps) else None
            if began is not None and began < reached:
                job = f"{folder.parent.name}/{folder.name}"
                yield Loss(job=job, incarnation=incarnation, steps=reached - began, seconds=(reached - began) * each)
            logged = int(steps.step.max()) if steps is not None and len(steps) else 0
            reached, each = max(reached, told, logged), seconds or each


def _told(folder: Path) -> list[tuple[int, int, float]]:
    """Incarnation, last step told and seconds a step of a job, as rank 0 told its launcher, oldest first."""
    told: dict[int, tuple[int, float]] = {}
    for path in folder.glob("containers/*/container.json"):
        record = _json(path)
        if record is None:
            continue
        progress = record["status"].get("progress", {})
        step, seconds = int(progress.get("step", 0)), float(progress.get("seconds_per_step", 0.0))
        before = told.get(int(record["incarnation"]), (0, 0.0))
        told[int(record["incarnation"])] = max(before, (step, seconds))
    return [(incarnation, *told[incarnation]) for incarnation in sorted(told)]


def _json(path: Path) -> dict[str, Any] | None:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return plain if isinstance(plain, dict) else None


# -- the command


def share_out(kills: int, runs: int, luck: random.Random) -> list[list[str]]:
    """Say which kinds are killed in which run: as many of each kind as can be, shuffled, runs of equal length."""
    kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
    shared = [kinds[number * len(kinds) // runs : (number + 1) * len(kinds) // runs] for number in range(runs)]
    for each in shared:
        luck.shuffle(each)
    return shared


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where something is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m eunomia_testbed.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=9, help="in all: workers, app masters and the arbiter in turn")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None, help="of victims and moments; default: a new one, printed")
    parser.add_argument("--out", type=Path, default=None, help="where to leave the runs' folders; default: nowhere")
    chosen = parser.parse_args(arguments)
    configure_logs(level="warning")
    seed = chosen.seed if chosen.seed is not None else secrets.randbelow(2**31)
    _say(f"seed {seed}: {chosen.kills} kills in {chosen.runs} runs")
    luck = random.Random(seed)
    place = chosen.out or Path(tempfile.mkdtemp(prefix="eunomia-kills-"))
    wrong: list[str] = []
    for number, kinds in enumerate(share_out(chosen.kills, chosen.runs, luck), start=1):
        done = kill_run(place / str(number), kinds, luck)
        wrong += [f"run {number}: {each}" for each in done.wrong]
        _tell(number, done)
    for each in wrong:
        _say(f"wrong: {each}")
    if chosen.out is None and not wrong:
        shutil.rmtree(place, ignore_errors=True)
    else:
        _say(f"folders: {place}")
    return 1 if wrong else 0


def _tell(number: int, done: KillRun) -> None:
    for kill in done.kills:
        _say(f"run {number}  {kill.at:6.1f} s  killed {kill.kind:<11}{kill.victim}")
    most, steps = max((loss.seconds for loss in done.losses), default=0.0), sum(loss.steps for loss in done.losses)
    finished = sum(state == "finished" for state in done.states.values())
    _say(
        f"run {number}  {finished} of {len(done.states)} apps finished in {done.seconds:.0f} s; slots held twice: "
        f"{len(done.held_twice)}; work lost: {steps} steps, at most {most:.1f} s at once"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
