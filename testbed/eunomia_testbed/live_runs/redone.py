"""Work that jobs repeated after an incarnation ended.

Time in which a worker was stopped does not count as work, nor does the time between two incarnations.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from eunomia.model.shapes import value
from eunomia_testbed.live_runs.logged import read_logs

LOSS: Final = "train/loss"
"""Tag that the programs log at each step."""
Span = tuple[float, float]
"""Start and end of a period, as Unix times."""


@value
class Redone:
    """Steps of an earlier incarnation that a job repeated, and the seconds of work in these steps."""

    job: str
    steps: int
    seconds: float


def redone(folder: Path, stopped: Mapping[str, Sequence[Span]]) -> Iterator[Redone]:
    """Yield the repeated work of every resume in a run's folder that repeated logged steps.

    Args:
        folder: folder of the run.
        stopped: by job, the periods in which one of the job's workers was stopped.
    """
    for run_dir in sorted(folder.glob("apps/[!.]*/[0-9]*")):  # ``.storage`` has files whose names begin with a digit
        job = f"{run_dir.parent.name}/{run_dir.name}"
        logs = read_logs(run_dir)
        before: dict[int, float] = {}
        idle = list(stopped.get(job, ()))
        for writer in logs.writers():
            steps = logs.as_written(LOSS, writer=writer)
            logged = dict(zip(steps.step.tolist(), steps.wall_time.tolist(), strict=True))
            if not logged:
                continue
            again = [step for step in before if step >= min(logged)]
            if again:
                yield Redone(job=job, steps=len(again), seconds=_work(before, min(logged) - 1, idle))
            if before:
                idle.append((max(before.values()), min(logged.values())))
            before = {step: at for step, at in before.items() if step < min(logged)} | logged


def _work(logged: Mapping[int, float], after: int, stopped: Sequence[Span]) -> float:
    """Return the seconds from the end of step ``after`` to the last logged step, without stopped periods."""
    begun = max((at for step, at in logged.items() if step <= after), default=min(logged.values()))
    ended = max(logged.values())
    idle, reached = 0.0, begun
    for since, until in sorted(stopped):  # overlapping periods count once
        idle += max(0.0, min(ended, until) - max(reached, since))
        reached = max(reached, min(ended, until))
    return ended - begun - idle
