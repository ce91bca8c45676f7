"""Measures the costs of live changes of size: a long job grows and shrinks as short jobs end and arrive."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from eunomia.errors import EunomiaError
from eunomia.model.shapes import value
from eunomia_appmaster.explaining.activity import CHANGE, RESIZED, RUNS
from eunomia_testbed.live_runs.live_run import ArbiterRun
from eunomia_testbed.live_runs.logged import words_of_failure
from eunomia_testbed.replay.measuring.changes import LiveChange, live_changes
from eunomia_testbed.replay.measuring.reading import Cost, MeasuredApp, Samples, read_samples
from eunomia_testbed.replay.measuring.setting import RateSetting, app_of

CHANGES_POLICY: Final = "max_min"
"""The policy that moves slots from a larger job to an arriving one and back, without measured rates."""
WANTED: Final = 3
"""Least number of growths, and of shrinks, of each program."""
LONG_ITERATIONS: Final = 10_000_000
"""Iterations of the long job, which is cancelled once it has changed often enough."""
SHORT_ITERATIONS: Final = 20
LOOK_SECONDS: Final = 0.2
STEADY_SECONDS: Final = 1.0
"""Seconds for which the long job runs at its largest size before short jobs arrive."""
LIMIT_SECONDS: Final = 180.0
"""Seconds within which each awaited event must occur, or else the measurement fails."""


def measured_changes(
    run: ArbiterRun, settings: Sequence[RateSetting], slots: int, say: Callable[[str], None]
) -> Samples:
    """Let a job of each program change its size live, one program after the other, and return the costs.

    Args:
        run: a run that has not begun, under ``CHANGES_POLICY``.
        settings: the largest size of each program.
        slots: number of slots of the run.
        say: called with a line of text for each program.

    Raises:
        EunomiaError: a job failed, or the long job does not change its size in time.
    """
    apps: dict[str, MeasuredApp] = {}
    with run:
        for number, setting in enumerate(settings):
            say(f"{setting.program} changes its size live, between 1 and {setting.slots} slots")
            changing = _Changing(run, setting, f"long-{number}", slots)
            changing.until_changed()
            measures = MeasuredApp(program=setting.program, batch_size=setting.batch_size, slot_type=setting.slot_type)
            apps[changing.name] = measures
    found = read_samples(run.record, apps)
    return Samples(costs=tuple(each for each in found.costs if each.cost in (Cost.PAUSE, Cost.JOIN)))


@value
class ChangeCounts:
    """Numbers of a job's growths and shrinks."""

    grown: int
    shrunk: int

    @classmethod
    def of(cls, changes: Sequence[LiveChange]) -> ChangeCounts:
        """Return the numbers of growths and shrinks among changes."""
        grown = sum(each.after > each.before for each in changes)
        return cls(grown=grown, shrunk=sum(each.after < each.before for each in changes))

    @property
    def suffice(self) -> bool:
        """Return whether both counts are at least ``WANTED``."""
        return min(self.grown, self.shrunk) >= WANTED


class _Changing:
    """A long job that uses all slots that it can, until waves of short jobs take all but one of them.

    Args:
        run: the run.
        setting: program and largest size of the long job.
        name: name of the long job.
        slots: number of slots of the run.
    """

    def __init__(self, run: ArbiterRun, setting: RateSetting, name: str, slots: int) -> None:
        self._run, self._setting, self.name, self._slots = run, setting, name, slots
        self._folder = run.folder.parent
        self._waves = 0

    def until_changed(self) -> None:
        """Run the long job until it has changed often enough, then cancel it."""
        run, name = self._run, self.name
        run.submit_also(app_of(self._setting, name, iterations=LONG_ITERATIONS, folder=self._folder, live=True))
        while True:
            self._wait(self._is_large, f"{name} has not grown to all its slots")
            time.sleep(STEADY_SECONDS)
            before = ChangeCounts.of(self._changes())
            if before.suffice:
                break
            self._wave()
            if ChangeCounts.of(self._changes()).shrunk == before.shrunk:
                rule = "a job that is measured must shrink live when others come"
                raise EunomiaError(rule, value=self._setting.describe(), place=str(run.folder))
        structlog.get_logger().info("measuring.changed", app=name, waves=self._waves)
        run.cancel(name)
        self._wait(lambda: self._ended([name], "cancelled"), f"{name} has not been cancelled")

    def _wave(self) -> None:
        """Run short jobs, which leave one slot to the long job, until they have finished."""
        one = dataclasses.replace(self._setting, slots=1)
        names = [f"{self.name}-{self._waves}-{number}" for number in range(self._slots - 1)]
        for name in names:
            self._run.submit_also(app_of(one, name, iterations=SHORT_ITERATIONS, folder=self._folder))
        self._waves += 1
        self._wait(lambda: self._ended(names, "finished"), "short jobs have not ended")

    def _changes(self) -> list[LiveChange]:
        return list(live_changes([line for line in self._run.record.lines if line.app == self.name]))

    def _is_large(self) -> bool:
        """Return whether the long job makes steps on all slots that it can use."""
        mine = [line for line in self._run.record.lines if line.app == self.name and line.event != CHANGE]
        return bool(mine) and mine[-1].event in (*RUNS, RESIZED) and len(mine[-1].slots) == self._setting.slots

    def _ended(self, names: Sequence[str], state: str) -> bool:
        lives = [self._run.record.apps.get(name) for name in names]
        return all(life is not None and life.state == state for life in lives)

    def _wait(self, until: Callable[[], bool], why: str) -> None:
        """Poll the run until a condition holds.

        Raises:
            EunomiaError: a job of the measurement failed, or ``LIMIT_SECONDS`` have passed.
        """
        since = time.monotonic()
        while not until():
            self._run.look()
            failed = [life.app for life in self._run.record.apps.values() if life.state == "failed"]
            if failed:
                words = words_of_failure(failed[0], self._run.record.app_dir(failed[0]))
                raise EunomiaError("a measuring job must not fail", value=words, place=str(self._run.folder))
            if time.monotonic() - since > LIMIT_SECONDS:
                rule = f"a live change that is measured must come within {LIMIT_SECONDS:g} s"
                raise EunomiaError(rule, value=why, place=str(self._run.folder))
            time.sleep(LOOK_SECONDS)
