"""How much work was lost with an incarnation that ended without a checkpoint of it: from logs, kills and exits."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.kills.moments import CHECKPOINT
from chaos.kills.victims import WORKER, Kill, read
from eunomia_testbed.live_runs.logged import read_logs

LOSS = "train/loss"
"""The tag that the scripts of the apps log at each step."""
REPORTED_SECONDS = 1.0
"""Age of the last progress that a worker reported, at most."""

Lived = tuple[str, int]
"""Job and incarnation."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Work that a job did again after ``incarnation`` had ended without a checkpoint of it.

    Attributes:
        steps: made again, as far as they were logged or reported.
        seconds: from the step that the checkpoint holds to the end; to its last step where it was killed while it
            wrote the next checkpoint, before which everything is logged.
    """

    job: str
    incarnation: int
    steps: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One incarnation; Unix times.

    Attributes:
        reported: the last step that rank 0 reported.
        step_seconds: that a step took, as it reported.
        started: when the first of its processes began.
        ended: when the first of them was gone; None: not known.
        logged: Unix time of each step in its log.
        wrote: whether its work ended with the last logged step, for it wrote a checkpoint then.
    """

    incarnation: int
    reported: int = 0
    step_seconds: float = 0.0
    started: float | None = None
    ended: float | None = None
    logged: Mapping[int, float] = dataclasses.field(default_factory=dict)
    wrote: bool = False

    @property
    def resumed(self) -> int | None:
        """The step that it went on from; None: it logged nothing."""
        return min(self.logged) - 1 if self.logged else None

    @property
    def reached(self) -> int:
        """The last step that is known of it."""
        return max(self.reported, *self.logged, 0)

    def seconds_since(self, step: int) -> float:
        """How long it worked after a step whose state was saved."""
        if not self.logged:  # killed within seconds of its start
            worked = (self.reported - step) * self.step_seconds + REPORTED_SECONDS
            lived = worked if self.started is None or self.ended is None else self.ended - self.started
            return min(worked, lived)
        last = self.logged[max(self.logged)]
        end = last if self.wrote or self.ended is None else max(last, self.ended)
        first = self.logged[min(self.logged)] - self.step_seconds
        return max(0.0, end - self.logged.get(step, first))


def victim_of(container: str) -> Lived:
    """Job and incarnation of a worker's container, ``APP.JOB.INCARNATION.RANK``."""
    app, job, incarnation, _ = container.rsplit(".", 3)
    return f"{app}/{job}", int(incarnation)


def losses(folder: Path, kills: Sequence[Kill]) -> Iterator[Loss]:
    """Every resume below a run's folder that did steps again."""
    killed = {victim_of(kill.victim): kill for kill in reversed(kills) if kill.kind == WORKER}
    for run_dir in sorted(folder.glob("apps/[!.]*/[0-9]*")):
        job = f"{run_dir.parent.name}/{run_dir.name}"
        yield from lost(job, _lives(job, run_dir, killed))


def lost(job: str, lives: Sequence[Life]) -> Iterator[Loss]:
    """Compare each incarnation with the one whose work it did again; ``lives`` are in order."""
    before: Life | None = None
    for life in lives:
        resumed = life.resumed
        if before is not None and resumed is not None and resumed < before.reached:
            yield Loss(
                job=job,
                incarnation=before.incarnation,
                steps=before.reached - resumed,
                seconds=before.seconds_since(resumed),
            )
        if before is None or resumed is not None or life.reached > before.reached:
            before = life


def _lives(job: str, run_dir: Path, killed: Mapping[Lived, Kill]) -> list[Life]:
    logs = read_logs(run_dir)
    logged: dict[int, dict[int, float]] = {}
    for writer in logs.writers():
        steps = logs.as_written(LOSS, writer=writer)
        logged[writer] = dict(zip(steps.step.tolist(), steps.wall_time.tolist(), strict=True))
    reported: dict[int, list[dict[str, Any]]] = {}
    for path in run_dir.glob("containers/*/container.json"):
        record = read(path)
        if record is not None:
            ends = {name: (read(path.with_name(f"{name}.json")) or {}) for name in ("worker", "exit")}
            reported.setdefault(int(record["incarnation"]), []).append({**record, **ends})
    return [
        _life(number, reported[number], logged.get(number, {}), killed.get((job, number)))
        for number in sorted(reported)
    ]


def _life(number: int, ranks: Sequence[dict[str, Any]], logged: Mapping[int, float], kill: Kill | None) -> Life:
    progress = [rank["status"].get("progress", {}) for rank in ranks]
    starts = [float(rank["worker"]["started_at"]) for rank in ranks if "started_at" in rank["worker"]]
    ends = [float(rank["exit"]["ended_at"]) for rank in ranks if "ended_at" in rank["exit"]]
    ends += [kill.at] if kill is not None else []
    return Life(
        incarnation=number,
        reported=max(int(each.get("step", 0)) for each in progress),
        step_seconds=max(float(each.get("seconds_per_step", 0.0)) for each in progress),
        started=min(starts, default=None),
        ended=min(ends, default=None),
        logged=logged,
        wrote=kill is not None and kill.moment == CHECKPOINT,
    )
