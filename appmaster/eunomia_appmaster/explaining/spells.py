"""Derives from the arbiter's state after each step the periods that each job spent in one state for one reason."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from eunomia.arbiter import ClusterView
from eunomia.contract.verdicts import Reason
from eunomia.model.workload import JobState
from eunomia.units import Ints

_EMPTY = int(JobState.EMPTY)
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
        text: cause of an ``interrupted`` or ``suspended`` period; empty: not known.
    """

    job: str
    start: float
    end: float | None = None
    state: str
    reason: str = ""
    stage: str = ""
    plugin: str = ""
    text: str = ""

    @property
    def said(self) -> tuple[str, str, str, str]:
        """The state, reason, stage and plugin; a change of any of them begins the next period."""
        return self.state, self.reason, self.stage, self.plugin


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

    def take(self, view: ClusterView, at: float, suspensions: Mapping[str, str] | None = None) -> None:
        """Extend the periods by the state after a step.

        Args:
            view: the arbiter's view of the cluster, after the step.
            at: time of the step in seconds, on the clock of the reader.
            suspensions: by job, the cause of its app's last suspension.
        """
        now = _columns(view)
        seen = self._seen
        if seen.shape != now.shape:  # the table of jobs has grown: rows that are not in use are EMPTY
            self._seen = np.zeros_like(now)
            self._seen[:, : seen.shape[1]] = seen
        for row in np.flatnonzero((now != self._seen).any(axis=0)).tolist():
            self._change(view, row, at, suspensions or {})
        self._seen = now

    def _change(self, view: ClusterView, row: int, at: float, suspensions: Mapping[str, str]) -> None:
        old = self._open.get(row)
        new = self._named(_spell(view, row, at))
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


def _columns(view: ClusterView) -> Ints:
    """Return, by row of the job table, numbers that change with a job's verdict or state; 0 where there is no job."""
    states = view.jobs.state
    return np.where(states == _EMPTY, 0, np.vstack([view.verdict_marks, states]))


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
