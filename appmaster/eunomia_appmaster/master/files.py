"""The files that an app master writes to its app's folder; each survives a kill at any moment."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia.model.shapes import value
from eunomia_appmaster.app.trials_file import trials_text
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.node.kept_files import OLDER, read_kept, sealed, set_aside
from eunomia_appmaster.node.system import MACHINE, System

log = structlog.get_logger()

SCHEMA = 1


class StateError(EunomiaError):
    """The state that an earlier attempt left cannot be read."""


@value
class Growth:
    """The groups of trials that a search was given after it had ended."""

    groups: tuple[int, ...] = ()
    """Sizes of the groups, in order."""
    before: Mapping[int, int] = field(default_factory=dict)
    """By trial, iterations done before the last group was added."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values; empty where there is no group."""
        if not self.groups:
            return {}
        before = {str(number): step for number, step in self.before.items()}
        return {"groups": list(self.groups), "before": before}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote."""
        before = {int(number): int(step) for number, step in values.get("before", {}).items()}
        return cls(groups=tuple(int(size) for size in values.get("groups", ())), before=before)

    def grown(self, ordered: Sequence[int], jobs: Iterable[Job]) -> "Growth":
        """Return the growth after the arbiter's order.

        Args:
            ordered: sizes of all groups, by the journal; of one that an older backup restored, those of the file count.
            jobs: of the file.
        """
        ordered = tuple(ordered)
        if ordered[: len(self.groups)] != self.groups or ordered == self.groups:
            return self
        return Growth(groups=ordered, before={job.number: job.step for job in jobs})


class KeptState(NamedTuple):
    """The state that an attempt leaves to the next one."""

    tuner: Any
    jobs: list[Job]
    growth: Growth = Growth()
    notices: tuple[str, ...] = ()
    """What was lost or replaced after damage, to be shown to users."""


def write_state(path: Path, state: KeptState, *, system: System = MACHINE) -> None:
    """Write ``master.json``: the state that the next attempt resumes from."""
    plain = {"schema": SCHEMA, "tuner": state.tuner, "jobs": [job.to_json() for job in state.jobs]}
    plain |= {"more": state.growth.to_json(), "notices": list(state.notices)}
    system.replace_file(path, sealed(plain), older=True)


def read_state(path: Path) -> KeptState | None:
    """Read ``master.json``, or its older copy where it is damaged; None: this is the first attempt.

    Raises:
        StateError: neither can be read.
    """
    try:
        kept = read_kept(path, cure="restore it from a backup, or submit the app's file again")
        if kept.damage:
            log.warning("master.older_copy", why=kept.damage, taken=f"{path.name}{OLDER}")
        if kept.content is None:
            return None
        state = _state_of(kept.content, path)
    except InputError as error:
        raise StateError("the state of an app master must be readable", value=str(error), place=str(path)) from error
    if not kept.damage:
        return state
    for job in state.jobs:
        job.incarnation += not job.state.over  # one may have been started since that copy was written
    said = f"{kept.damage}; the search goes on from its older copy, which is one write older"
    return state._replace(notices=(*state.notices, said))


def _state_of(state: Mapping[str, Any], path: Path) -> KeptState:
    try:
        if state["schema"] != SCHEMA:
            raise StateError(f"the state must have schema {SCHEMA}", value=str(state["schema"]), place=str(path))
        growth = Growth.from_json(state["more"])
        jobs = [Job.from_json(job) for job in state["jobs"]]
        return KeptState(state["tuner"], jobs, growth, tuple(map(str, state.get("notices", ()))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError("the state of an app master must be readable", value=repr(error), place=str(path)) from error


def put_damaged_state_aside(path: Path) -> None:
    """Rename a ``master.json`` that is damaged, before the first state of this attempt is written."""
    if read_kept(path, cure="").damage:
        set_aside(path)


def write_trials(path: Path, app: str, jobs: Iterable[Job], *, system: System = MACHINE) -> None:
    """Write ``trials.csv``, a row a job; unknown values are empty."""
    rows: list[Sequence[object]] = []
    for job in jobs:
        values = (job.rung, job.step, job.metric, job.best, job.incarnation, job.lost, job.why or job.notice)
        rows.append([f"{app}/{job.number}", json.dumps(dict(job.parameters)), str(job.state), *values])
    system.replace_file(path, trials_text(rows))


class ActivityLog:
    """``activity.jsonl``: the events of each job with their times, a JSON object a line, for reports."""

    def __init__(self, path: Path, app: str, *, system: System = MACHINE) -> None:
        self._system = system
        self._path = path
        self._app = app

    def note(self, event: str, job: Job, at: float, *, slots: Sequence[int] = (), step: int | None = None) -> None:
        """Append a line.

        Args:
            event: start, running, saved, suspending, suspended, resumed, paused, promoted, stalled, finished,
                stopped, failed, lost_checkpoints.
            job: the event's job.
            at: Unix seconds.
            slots: numbers of the GPUs in the cluster.
            step: None: the job's last known one.
        """
        line = {
            "t": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "job": f"{self._app}/{job.number}",
            "event": event,
            "slots": list(slots),
            "step": job.step if step is None else step,
            "incarnation": job.incarnation,
        }
        try:
            self._system.append_line(self._path, sealed(line))
        except OSError as error:  # a missing line in a report is better than a failed app
            log.warning("activity.not_noted", activity=event, why=str(error))
