"""The reports that a trial's script prints on its standard output, one per line, over all starts of the trial.

A report is a line of Syne Tune's ``Reporter``: ``[tune-metric]: {"epoch": 1, "loss": 0.5}``. Only new text is read.
"""

import json
import re
import time
from pathlib import Path
from typing import Any

import structlog

from eunomia_appmaster.app.outputs import STDOUT, output_files

log = structlog.get_logger()

Report = dict[str, Any]
"""A report: values by name."""
LINE = re.compile(rb"\[tune-metric\]: (\{.*\})")
TIMESTAMP = "st_worker_timestamp"
"""Name of the Unix time in seconds at which a report was made."""


class TrialReports:
    """The reports of one trial.

    Args:
        run_folder: folder of the trial, ``apps/APP/NUMBER``.
        time_attr: name of the value that increases with each report, such as ``"epoch"``: reports that a trial repeats
            after a restart from a checkpoint are left out. None: all reports count.
    """

    def __init__(self, run_folder: Path, time_attr: str | None = None) -> None:
        self.reports: list[Report] = []
        """All reports so far, in order."""
        self._folder = run_folder
        self._time_attr = time_attr
        self._read: dict[Path, int] = {}
        """Number of bytes read of each file, up to a line end."""
        self._last: float | None = None

    def poll(self) -> list[Report]:
        """Read new output, and return all reports so far."""
        for path in output_files(self._folder, STDOUT):
            self._read_file(path)
        return self.reports

    def _read_file(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                new = file.read()
        except FileNotFoundError:
            return
        whole = new.rfind(b"\n") + 1
        self._read[path] = self._read.get(path, 0) + whole
        for found in LINE.finditer(new[:whole]):
            self._add(found[1], path)

    def _add(self, text: bytes, path: Path) -> None:
        try:
            report = json.loads(text)
        except ValueError as error:
            log.warning("report.unread", place=str(path), why=f"a report must be JSON: {error}")
            return
        if self._time_attr is not None:
            at = report.get(self._time_attr)
            if isinstance(at, bool) or not isinstance(at, int | float):
                rule = f"a report must have a number {self._time_attr}, but got {at!r}"
                log.warning("report.unread", place=str(path), why=rule)
                return
            if self._last is not None and at <= self._last:
                return
            self._last = at
        self.reports.append({TIMESTAMP: time.time()} | report)
