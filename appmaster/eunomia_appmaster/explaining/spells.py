"""Derives from the arbiter's state after each step the periods that each job spent in one state for one reason."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from eunomia.arbiter import ClusterView
from eunomia.contract.events import Event, JobsDivided, Resized, Started
from eunomia.contract.verdicts import Reason
from eunomia.model.leases import LeaseState
from eunomia.model.workload import JobState
from eunomia.units import NONE, Ints

_EMPTY = int(JobState.EMPTY)
_RUNS, _STARTS = JobState.RUNNING.name.lower(), JobState.STARTING.name.lower()
_HAVE_REASONS = (JobState.WAITING, JobState.STOPPING, JobState.PAUSED)
"""States of jobs whose verdict gives the reason why they do not run."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Spell:
    """A period that a job spent in one state for one reason.

    Attributes:
        start: start of the period in seconds, on the clock of the reader.
        end: end in seconds, on the same clock; None: the period lasts until the end of the journal.
        state: state of the job, in lower case.
        reason: why the job is in this state; empty: there is no reason.
        stage: the stage that gave the reason; empty: none did.
        plugin: the plugin of that stage; empty: none.
        text: cause of an ``interrupted`` or ``suspended`` period, or the live change with which a ``running`` one
            begins; empty: not known, or none.
        slots: number of slots on which the job ran; 0: it did not run.
        ended_live: whether a change of the job's size that was made at the period's end was made live (True) or by a
            restart (False); None: none was made.
    """

    job: str
    start: float
    end: float | None = None
    state: str
    reason: str = ""
    stage: str = ""
    plugin: str = ""
    text: str = ""
    slots: int = 0
    ended_live: bool | None = None

    @property
    def said(self) -> tuple[str, str, str, str, int]:
        """The state, reason, stage, plugin and size; a change of any of them begins the next period."""
        return self.state, self.reason, self.stage, self.plugin, self.slots


class Spells:
    """The periods of all jobs, in order of their start.

    Args:
        name_of: returns the name under which a job's periods are kept; None: they are left out.
    """

    def __init__(self, name_of: Callable[[str], str | None] = str) -> None:
        self.spells: list[Spell] = []
        self._name_of = name_of
        self._open: dict[int, Spell] = {}
        self._seen: Ints = np.empty((5, 0), np.int64)

    def take(
        self,
        view: ClusterView,
        at: float,
        suspensions: Mapping[str, str] | None = None,
        events: Iterable[Event] = (),
    ) -> None:
        """Extend the periods by the state after a step.

        Args:
            view: the arbiter's view of the cluster, after the step.
            at: time of the step in seconds, on the clock of the reader.
            suspensions: by job, the cause of its app's last suspension.
            events: the events of the step, from which sizes, and how they changed, are known.
        """
        now, resized = _columns(view), self._resized(view, events)
        seen = self._seen
        if seen.shape != now.shape:  # the table of jobs has grown: rows that are not in use are EMPTY
            self._seen = np.zeros_like(now)
            self._seen[:, : seen.shape[1]] = seen
        for row in sorted(resized.union(np.flatnonzero((now != self._seen).any(axis=0)).tolist())):
            self._change(view, row, at, suspensions or {})
        self._seen = now

    def _resized(self, view: ClusterView, events: Iterable[Event]) -> set[int]:
        """Return the rows of jobs whose changes of size are confirmed, and note how these were made."""
        rows = set[int]()
        for event in events:
            if isinstance(event, JobsDivided):
                rows.update(view.job_row(job) for job in event.jobs)
            elif isinstance(event, Resized | Started) and (lease := view.lease(event.lease)) is not None:
                rows.add(lease.job)
                if lease.job in self._open:
                    self._open[lease.job].ended_live = isinstance(event, Resized)
        return rows - {NONE}

    def _change(self, view: ClusterView, row: int, at: float, suspensions: Mapping[str, str]) -> None:
        old = self._open.get(row)
        new = self._named(_spell(view, row, at))
        if new is not None and new.state == _RUNS:
            new.slots = _size(view, row) or (0 if old is None or old.job != new.job else old.slots)
        if old is not None and new is not None and (old.job, old.said) == (new.job, new.said):
            return
        if old is not None:
            old.end = at
            del self._open[row]
        if new is not None:
            if new.reason == Reason.SUSPENDED.word:
                new.text = suspensions.get(new.job, "")
            self._open[row] = new
            self.spells.append(new)

    def _named(self, spell: Spell | None) -> Spell | None:
        name = None if spell is None else self._name_of(spell.job)
        if spell is None or name is None:
            return None
        spell.job = name
        return spell


def through_changes(spells: Sequence[Spell]) -> list[Spell]:
    """Return the periods of one job, which runs through the changes of its size that were made live.

    While a job is ordered to give up slots, the arbiter's state is ``starting``, whether the job stops for the change
    or trains on; how the change was made says which. Where nothing says so, as the order was replaced or the journal
    ends, a job that has changed live before has trained on.

    Args:
        spells: the job's periods, in order.
    """
    lives, made = any(spell.ended_live for spell in spells), list[Spell]()
    for spell in spells:
        before = made[-1] if made else None
        if before is None or before.state != _RUNS or before.end != spell.start:
            made.append(spell)
        elif spell.state == _STARTS and (spell.ended_live or (lives and spell.ended_live is None)):
            made[-1] = dataclasses.replace(before, end=spell.end, ended_live=spell.ended_live)
        elif spell.state == _RUNS and before.ended_live:
            made.append(dataclasses.replace(spell, text=_change(before.slots, spell.slots)))
        else:
            made.append(spell)
    return made


def _change(before: int, after: int) -> str:
    if before == after:
        return "moved live to other slots"
    if not before:
        return f"changed live to {after} slot{'' if after == 1 else 's'}"
    return f"changed live from {before} slot{'' if before == 1 else 's'} to {after}"


def _columns(view: ClusterView) -> Ints:
    """Return, by row of the job table, numbers that change with a job's verdict or state; 0 where there is no job."""
    states = view.jobs.state
    return np.where(states == _EMPTY, 0, np.vstack([view.verdict_marks, states]))


def _size(view: ClusterView, row: int) -> int:
    """Return the number of slots on which a job runs; 0: a change is ordered, so that it is the one from before."""
    lease = view.lease_of(row)
    if lease is None:
        return int((view.gpus.job == row).sum())
    return int(lease.running.size) if lease.state is LeaseState.ACTIVE else 0


def _spell(view: ClusterView, row: int, at: float) -> Spell | None:
    """Return the period of a job that begins now; None: the row has no job."""
    kind = JobState(int(view.jobs.state[row]))
    if kind is JobState.EMPTY:
        return None
    spell = Spell(job=str(view.job_id(row)), start=at, state=kind.name.lower())
    verdict = view.verdict(row)
    if kind in _HAVE_REASONS and verdict.reason is not None:
        spell.reason = verdict.reason.word
        if kind is not JobState.PAUSED and verdict.stage is not None:
            spell.stage, spell.plugin = verdict.stage.value, verdict.plugin
    return spell
