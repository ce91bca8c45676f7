"""The files that an app master writes to its app's folder; each stays valid if the process is killed at any moment."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia.model.shapes import value
from eunomia_appmaster.app.master_folders import STATE_FILE, master_folders
from eunomia_appmaster.app.trials_file import row_text, trials_text
from eunomia_appmaster.master.job_index import JobIndex
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.master.record import read_log
from eunomia_appmaster.node.kept_files import OLDER, read_kept, sealed
from eunomia_appmaster.node.system import MACHINE, System

log = structlog.get_logger()

SCHEMA = 2
SCHEMAS = (1, SCHEMA)
"""Versions of the state that can be read; version 1, of earlier releases, has no log of changes."""


MOST_WORDS = 300
"""Most characters of an end's reason in a line of the activity log."""


class StateError(EunomiaError):
    """The state of an earlier attempt cannot be read."""


@value
class Growth:
    """The groups of trials that were added to a search after it had ended."""

    groups: tuple[int, ...] = ()
    """Sizes of the added groups, in order."""
    before: Mapping[int, int] = field(default_factory=dict)
    """Iterations done before the last group was added, by trial."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; empty if there is no group."""
        if not self.groups:
            return {}
        before = {str(number): step for number, step in self.before.items()}
        return {"groups": list(self.groups), "before": before}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read the values of ``to_json``."""
        before = {int(number): int(step) for number, step in values.get("before", {}).items()}
        return cls(groups=tuple(int(size) for size in values.get("groups", ())), before=before)

    def grown(self, ordered: Sequence[int], jobs: Iterable[Job]) -> "Growth":
        """Return the growth after the arbiter's order to add trials.

        Args:
            ordered: sizes of all groups in the journal; ignored if an older backup restored a journal with fewer
                groups.
            jobs: the jobs in the state file.
        """
        ordered = tuple(ordered)
        if ordered[: len(self.groups)] != self.groups or ordered == self.groups:
            return self
        return Growth(groups=ordered, before={job.number: job.step for job in jobs})


class KeptState(NamedTuple):
    """The state that an attempt saved for the next one."""

    tuner: Any
    jobs: list[Job]
    growth: Growth = Growth()
    notices: tuple[str, ...] = ()
    """Notices for users about files that were lost or replaced after damage."""
    number: int = 0
    """The largest number of a saved state in the files, see ``record``."""


def rest_of(tuner: Any, growth: Growth, notices: Sequence[str]) -> dict[str, Any]:
    """Return the state without its jobs, as ``StateRecord.write`` takes it."""
    return {"schema": SCHEMA, "tuner": tuner, "more": growth.to_json(), "notices": list(notices)}


_REMEDY = "restore it from a backup, or submit the app's file again"


def read_state(path: Path) -> KeptState | None:
    """Read ``master.json``, or its backup if it is damaged, and the log of changes; None: this is the first attempt.

    Raises:
        StateError: neither file can be read.
    """
    try:
        kept = read_kept(path, remedy=_REMEDY)
        if kept.damage:
            log.warning("master.older_copy", why=kept.damage, taken=f"{path.name}{OLDER}")
        if kept.content is None:
            return None
        _check_schema(kept.content, path)
        read = read_log(path, kept.content, older=bool(kept.damage))
        state = _state_of(kept.content, path)._replace(number=read.number)
    except InputError as error:
        rule = f"the state of an app master must be readable ({_REMEDY})"
        raise StateError(rule, value=error.value or error.rule, place=str(path)) from error
    if not (kept.damage or read.damage or read.torn):
        return state
    for job in state.jobs:
        job.incarnation += not job.state.over  # a gang may have been started after the state that was read
    said = []
    if kept.damage and read.complete and not read.damage:
        said.append(f"{kept.damage}; the search goes on from its older copy and all that changed since")
    elif kept.damage:
        said.append(f"{kept.damage}; the search goes on from its older copy, which is one write older")
    if read.damage:
        log.warning("master.log_damaged", why=read.damage)
        said.append(f"{read.damage}; the search goes on from that entry")
    return state._replace(notices=(*state.notices, *said))


def _check_schema(state: Mapping[str, Any], path: Path) -> None:
    if state.get("schema") not in SCHEMAS or not isinstance(state.get("jobs"), list):
        rule = f"the state must have schema {' or '.join(map(str, SCHEMAS))}, and jobs"
        raise StateError(rule, value=str(state.get("schema")), place=str(path))


def _state_of(state: Mapping[str, Any], path: Path) -> KeptState:
    try:
        growth = Growth.from_json(state["more"])
        jobs = [Job.from_json(job) for job in state["jobs"]]
        return KeptState(state["tuner"], jobs, growth, tuple(map(str, state.get("notices", ()))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError("the state of an app master must be readable", value=repr(error), place=str(path)) from error


def read_newest_state(app_dir: Path) -> KeptState | None:
    """Read the state of the newest attempt whose state is readable; None: no attempt saved one.

    Raises:
        StateError: there are states, but none can be read.
    """
    failure: StateError | None = None
    for folder in master_folders(app_dir):
        try:
            state = read_state(folder / STATE_FILE)
        except StateError as error:
            failure = failure or error
            continue
        if state is None:
            continue
        if failure is None:
            return state
        log.warning("master.older_attempt", why=str(failure), taken=str(folder))
        for job in state.jobs:
            job.incarnation += not job.state.over  # a gang may have been started since
        said = f"{failure.value}; the search goes on from what the attempt before had written"
        return state._replace(notices=(*state.notices, said))
    if failure is not None:
        raise failure
    return None


class TrialsFile:
    """``trials.csv``: one row per job; unknown values are empty. A row is formatted again only if its job has changed.

    Args:
        path: path of the file.
        app: name of the app.
        jobs: the app's jobs.
        system: files of the machine.
    """

    def __init__(self, path: Path, app: str, jobs: JobIndex, *, system: System = MACHINE) -> None:
        self._path, self._app, self._system = path, app, system
        self._changed = jobs.follow()
        self._rows: dict[int, str] = {}

    def write(self) -> int:
        """Write the file, and return the number of characters written; 0: no job has changed since the last write.

        Raises:
            OSError: it cannot be written.
        """
        changed = self._changed.take()
        if not changed:
            return 0
        self._rows |= {job.number: row_text(self._row(job)) for job in changed}
        text = "".join((trials_text([]), *self._rows.values()))
        try:
            self._system.replace_file(self._path, text)
        except OSError:
            self._changed.add_all(changed)
            raise
        return len(text)

    def _row(self, job: Job) -> tuple[object, ...]:
        values = (job.rung, job.step, job.metric, job.best, job.incarnation, job.lost, job.why or job.notice)
        return (f"{self._app}/{job.number}", json.dumps(dict(job.parameters)), str(job.state), *values)


class ActivityLog:
    """``activity/a2-g1.jsonl``: the events of each job with their times, one JSON object per line, for reports."""

    def __init__(self, path: Path, app: str, *, system: System = MACHINE) -> None:
        self._system = system
        self._path = path
        self._app = app

    def note(
        self,
        event: str,
        job: Job,
        at: float,
        *,
        slots: Sequence[int] = (),
        step: int | None = None,
        why: str = "",
        pause_seconds: float | None = None,
    ) -> None:
        """Append an event as one line; a failed write is only logged.

        Args:
            event: start, running, change, resized, left_out, saved, suspending, suspended, resumed, paused, promoted,
                stalled, finished, stopped, failed, lost_checkpoints.
            job: the event's job.
            at: Unix seconds.
            slots: numbers of the GPUs in the cluster.
            step: None: the job's last known one.
            why: reason of an end, part of a live change, or how long it took; empty: none.
            pause_seconds: seconds for which the job stood still in a live change; None: there was none.
        """
        line: dict[str, Any] = {
            "t": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "job": f"{self._app}/{job.number}",
            "event": event,
            "slots": list(slots),
            "step": job.step if step is None else step,
            "incarnation": job.incarnation,
        } | ({"why": why[:MOST_WORDS]} if why else {})
        line |= {} if pause_seconds is None else {"pause_seconds": pause_seconds}
        try:
            self._system.append_line(self._path, sealed(line))
        except OSError as error:  # a missing line in a report is better than a failed app
            log.warning("activity.not_noted", activity=event, why=str(error))
