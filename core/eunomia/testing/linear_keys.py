"""Test linear keys: an allocation recomputes a key only if the job's row changes, so keys must be valid until then."""

import numpy as np

from eunomia.contract.keys import LinearKeyError
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.valuations import LinearKey, Scores, Valuations
from eunomia.model.workload import Jobs, JobState
from eunomia.units import Rows, Version

_RANKED = (int(JobState.WAITING), int(JobState.STARTING), int(JobState.RUNNING))
_WAITING = int(JobState.WAITING)
TOLERANCE = 1e-9
"""Relative rounding error allowed between a key computed earlier and one computed now."""


class KeyCheck:
    """Compares the keys of each round with those of earlier rounds, for one arbiter."""

    def __init__(self) -> None:
        self._jobs: Jobs | None = None
        self._version = Version(0)
        self._known: dict[int, tuple[float, float, float]] = {}

    def problem(self, snapshot: Snapshot, valuations: Valuations) -> str | None:
        """Return a description of a key that breaks a rule; None: no key does, or there are no linear keys."""
        scores = next((form for form in valuations.forms if isinstance(form, Scores)), None)
        if scores is None or scores.linear_key is None:
            return None
        state = snapshot.jobs.state
        rows = np.flatnonzero(np.isin(state, _RANKED)).astype(np.int32)
        try:
            given = scores.linear_key(rows)
        except LinearKeyError as error:
            return str(error)
        for row, entry in zip(rows.tolist(), given.entries(), strict=True):
            name = snapshot.jobs.id[row]
            if scores.linear_key(np.array([row], np.int32)).entries() != [entry]:
                return f'that of "{name}" alone differs from that of "{name}" among others'
            if state[row] == _WAITING and entry[1] != 0.0:
                return f'"{name}" waits, and the slope of its key is {entry[1]:g}'
        return self._changed(snapshot, rows, given) or _misranked(snapshot, valuations, scores)

    def _changed(self, snapshot: Snapshot, rows: Rows, given: LinearKey) -> str | None:
        """Describe a key that differs from the one given earlier for the same row; None if there is none."""
        changes = snapshot.changed(self._version) if self._jobs is snapshot.jobs else None
        self._jobs, self._version = snapshot.jobs, snapshot.version
        kept = {} if changes is None else self._known
        for row in () if changes is None else changes.jobs.tolist():
            kept.pop(row, None)
        now, found = float(snapshot.now), None
        for row, key, entry in zip(rows.tolist(), given.at(snapshot.now).tolist(), given.entries(), strict=True):
            intercept, slope, valid_until = kept.get(row, entry)
            if valid_until > now and not np.isclose(intercept + slope * now, key, rtol=TOLERANCE, atol=TOLERANCE):
                was = intercept + slope * now
                found = f'that of "{snapshot.jobs.id[row]}", whose row did not change, is {key:g} and not {was:g}'
            if valid_until <= now:
                kept.pop(row, None)
            kept.setdefault(row, entry)
        self._known = {row: kept[row] for row in rows.tolist()}
        return found


def _misranked(snapshot: Snapshot, valuations: Valuations, scores: Scores) -> str | None:
    """Describe a difference between the orders of claims by scores and by keys; None if they agree."""
    jobs, key = valuations.claims.rows, scores.linear_key
    if key is None or jobs.size == 0:
        return None
    by_key = np.lexsort((snapshot.jobs.arrived[jobs], key(jobs).at(snapshot.now)))
    at = np.flatnonzero(scores.ranking() != by_key)
    return f"score and key differ at place {at[0] + 1} of the order" if at.size else None
