"""The part of an arbiter's record that belongs to one run: its apps, under their names in the run, and its steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from eunomia.journal.journal import SavedState

NAMES = ("app", "job")
"""Columns of plugins' records that hold the name of an app or of a job."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunPart:
    """The steps and apps of a run in the record of an arbiter that served before, or serves others.

    Attributes:
        names: the run's name of each of its apps, by the app's name at the arbiter; it may grow during the run. None:
            all apps belong to the run, under their own names.
        begun: the arbiter's state from which the steps are replayed; None: the journal's oldest checkpoint, or its
            first step.
        after_step: number of the last step before the run.
        until_step: number of the run's last step; None: all steps.
    """

    names: Mapping[str, str] | None = None
    begun: SavedState | None = None
    after_step: int = 0
    until_step: int | None = None

    def app(self, name: str) -> str | None:
        """Return the run's name of an app, from its name at the arbiter; None: the app is not of the run."""
        return name if self.names is None else self.names.get(name)

    def job(self, name: str) -> str | None:
        """Return the run's name of a job such as ``app/3``; None: its app is not of the run."""
        app, slash, number = name.rpartition("/")
        mine = self.app(app if slash else number)
        return None if mine is None else f"{mine}{slash}{number}" if slash else mine

    def at_arbiter(self, app: str) -> str:
        """Return the name at the arbiter of an app of the run."""
        if self.names is None:
            return app
        return next((there for there, here in self.names.items() if here == app), app)

    def row(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """Return a row of a plugin's record with the run's names; None: its app or job is not of the run."""
        if self.names is None:
            return row
        renamed = dict(row)
        for column in NAMES:
            if isinstance(row.get(column), str):
                mine = self.job(row[column]) if column == "job" else self.app(row[column])
                if mine is None:
                    return None
                renamed[column] = mine
        return renamed

    def note(self, note: Any) -> Any:
        """Return the arbiter's note on an app of the run, with the run's name of its best job."""
        standing = note.get("standing") if isinstance(note, dict) else None
        best = standing.get("best_job") if isinstance(standing, dict) else None
        if not isinstance(note, dict) or not isinstance(standing, dict) or not best:
            return note
        return note | {"standing": standing | {"best_job": self.job(str(best)) or best}}


WHOLE = RunPart()
"""All apps and steps of a record, as of an arbiter that serves one run."""
