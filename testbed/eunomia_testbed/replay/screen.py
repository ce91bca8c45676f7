"""Shows the progress of a replay's real runs on stderr, a line at a time."""

import time
from collections.abc import Callable
from typing import Final

from eunomia.units import format_duration
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.replay.running import Watched

EVERY_SECONDS: Final = 15.0


class Lines:
    """Writes lines on the progress of one real run.

    Args:
        say: called with each line.
        number: number of the run, from 1.
        runs: total number of runs.
    """

    def __init__(self, say: Callable[[str], None], number: int, runs: int) -> None:
        self._say, self._number, self._runs = say, number, runs
        self._said_at = -EVERY_SECONDS
        self._began = time.monotonic()

    def show(self, watched: Watched) -> None:
        """Write a line on the state of the run, at most every ``EVERY_SECONDS``."""
        now = time.monotonic()
        if now - self._said_at < EVERY_SECONDS:
            return
        self._said_at = now
        ended = sum(life.ended_at is not None for life in watched.record.apps.values())
        self._say(
            f"run {self._number} of {self._runs} ({watched.run.name}), {format_duration(now - self._began)}: "
            f"{watched.submitted} of {watched.apps} submitted, {ended} ended, {watched.record.holds.busy} slots held"
        )

    def end(self, record: LiveRecord) -> None:
        """Write a last line with the run's number of apps and duration."""
        seconds = time.monotonic() - self._began
        self._say(f"run {self._number} of {self._runs}: {len(record.apps)} apps ended in {format_duration(seconds)}")
