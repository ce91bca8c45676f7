"""Runs the measuring jobs of a replay on its slots under the real service, and returns rates and costs.

First each program starts once by exec and makes a few steps, which determine the length of its other jobs. Then all
settings run, with more jobs at a time than slots. A time-sharing policy suspends and resumes these jobs, so that they
yield rates, starts, saves and restores, with neighbours that are as busy as in a replay.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Final

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia.model.shapes import value
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.live_runs.live_run import ArbiterRun, LiveRun
from eunomia_testbed.live_runs.logged import words_of_failure
from eunomia_testbed.performance.replay_profiles import Measurements
from eunomia_testbed.replay.measuring.changing import CHANGES_POLICY, measured_changes
from eunomia_testbed.replay.measuring.machine import machine_words, present_versions
from eunomia_testbed.replay.measuring.reading import MeasuredApp, Samples, read_samples
from eunomia_testbed.replay.measuring.setting import RateSetting, app_of
from eunomia_testbed.replay.measuring.summary import check_complete, measured_from, spreads_of
from eunomia_testbed.replay.pace import RunPace
from eunomia_testbed.replay.pace_meter import PaceMeter

POLICY: Final = "las"
TURN_SECONDS: Final = 5
"""Seconds after which a job may lose its slots to a job that has run less."""
SETTINGS: Final = (f"rounds.every={TURN_SECONDS}s", f"rounds.protected={TURN_SECONDS - 1}s")
PILOT_ITERATIONS: Final = 20
LOOK_SECONDS: Final = 0.5
LIMIT_SECONDS: Final = 300.0
"""Seconds within which at least one more job must end, or else the measurement fails."""


@value
class Effort:
    """How much is measured.

    Attributes:
        seconds: length of a job on one slot, without starts and saves; more than two turns, so that each job is
            suspended while others wait.
        repeats: number of jobs in each setting.
    """

    seconds: float = 12.0
    repeats: int = 2


@value
class MeasuringJob:
    """A measuring job: its app, and the program, batch size and slot type that it measures."""

    source: AppSource
    name: str
    measures: MeasuredApp


@value
class SlotKind:
    """Slots of one type, on which programs are measured together.

    Attributes:
        name: the type.
        count: number of slots.
        speed: pace of a slot as a fraction of a core; 0: unpaced.
        cpu_slots: whether slots without a pace are CPU slots even on a machine with GPUs.
    """

    name: str
    count: int
    speed: float = 0.0
    cpu_slots: bool = False

    @property
    def slot_types(self) -> str:
        """Return the value of ``eunomia serve --slot-types`` for these slots; empty: they are unpaced."""
        return f"{self.count}x {self.name}:{self.speed:g}" if self.speed > 0.0 else ""

    def describe(self) -> str:
        """Return the slots as text, as in a file of profiles."""
        return f"{self.count} x {self.name}" + (f" of {self.speed:g} core" if self.speed > 0.0 else "")


MakeRun = Callable[[Path, SlotKind, str, Sequence[str]], ArbiterRun]
"""Returns a run without apps on all slots of one type, from its new folder, the slots, a policy and its settings."""


def own_run(
    folder: Path, kind: SlotKind, policy: str, settings: Sequence[str], run_class: type[LiveRun] = LiveRun
) -> LiveRun:
    """Return a measuring run with an arbiter of its own; see ``MakeRun``."""
    return run_class(
        folder,
        [],
        policy=policy,
        settings=settings,
        slots=kind.count if kind.cpu_slots else None,
        slot_types=kind.slot_types,
        cpu_only=kind.cpu_slots,
    )


def measure(
    folder: Path,
    wanted: Sequence[RateSetting],
    kinds: Sequence[SlotKind],
    *,
    effort: Effort | None = None,
    changes: Sequence[RateSetting] = (),
    make_run: MakeRun = own_run,
    say: Callable[[str], None] = lambda _line: None,
) -> Measurements:
    """Measure programs in their settings, one slot type after the other.

    Args:
        folder: new folder for the runs.
        wanted: the settings.
        kinds: the slots of the replay.
        effort: how much is measured; None: ``Effort()``.
        changes: for each program whose jobs change their size live, the setting of the largest size on each slot type.
        make_run: makes the runs of the measuring jobs, on arbiters of their own by default.
        say: called with a line of text for each step of the measurement.

    Raises:
        InputError: a setting needs more slots, or another slot type, than there are.
        EunomiaError: a job failed, or did not end in time.
    """
    effort = effort or Effort()
    _check_slots(wanted, kinds)
    samples, paces = Samples(), []
    for kind in kinds:
        mine = [setting for setting in wanted if setting.slot_type == kind.name]
        if mine:
            found, pace = _of_kind(folder / kind.name, mine, kind, effort, make_run, say)
            samples += found
            paces.append(pace)
            if not pace.is_valid:
                say(f"the measurement on {kind.describe()} is {pace.describe()}")
        grown = [setting for setting in changes if setting.slot_type == kind.name and setting.slots > 1]
        if grown:
            place = folder / f"{kind.name}-changes"
            place.mkdir(parents=True)
            run = make_run(place / "run", kind, CHANGES_POLICY, ())
            samples += measured_changes(run, grown, kind.count, say)
    profiles, costs, by_program = measured_from(samples, {kind.name: kind.speed for kind in kinds})
    check_complete(profiles, wanted)
    return Measurements(
        profiles=profiles,
        costs=costs,
        machine=machine_words(),
        versions=present_versions(),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        program_costs=by_program,
        spreads=spreads_of(samples.costs),
        loop_seconds=mean_of([pace.loop_seconds for pace in paces]),
        pace=min((pace.fraction for pace in paces if pace.fraction is not None), default=None),
    )


def mean_of(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values; None: none is known."""
    known = [each for each in values if each is not None]
    return fmean(known) if known else None


def kinds_words(kinds: Sequence[SlotKind]) -> str:
    """Return kinds of slots as text, such as ``2 x cpu-0.35 of 0.35 core``, as a profiles file states them."""
    return ", ".join(kind.describe() for kind in kinds)


def _check_slots(wanted: Sequence[RateSetting], kinds: Sequence[SlotKind]) -> None:
    counts = {kind.name: kind.count for kind in kinds}
    for setting in wanted:
        if setting.slots > counts.get(setting.slot_type, 0):
            rule = "programs must be measured on slots that there are"
            raise InputError(rule, value=setting.describe(), place=f"slots: {kinds_words(kinds)}")


def _of_kind(
    folder: Path,
    wanted: Sequence[RateSetting],
    kind: SlotKind,
    effort: Effort,
    make_run: MakeRun,
    say: Callable[[str], None],
) -> tuple[Samples, RunPace]:
    """Measure the settings of one slot type on all its slots; return the samples and the slots' pace."""
    folder.mkdir(parents=True)
    run = make_run(folder / "run", kind, POLICY, SETTINGS)
    pilots = _pilots(wanted, folder)
    with run, PaceMeter(run.record.folder) as meter:
        say(f"{len(pilots)} programs start by exec on {kind.describe()}")
        _run_all(run, pilots, kind.count)  # no pilot waits, because a turn is too short for a start by exec
        first = read_samples(run.record, {job.name: job.measures for job in pilots})
        jobs = _jobs(wanted, folder, _speeds(first, pilots), effort)
        say(f"{len(jobs)} jobs in {len(wanted)} settings on {kind.describe()}")
        _run_all(run, jobs, 2 * kind.count)
    for fault in run.faults:
        say(f"the measurement on {kind.describe()} does not count: {fault}")
    return read_samples(run.record, {job.name: job.measures for job in [*pilots, *jobs]}), meter.result()


def _pilots(wanted: Sequence[RateSetting], folder: Path) -> list[MeasuringJob]:
    """Return a short job on one slot for each program, started by exec."""
    first = {setting.program: setting for setting in reversed(wanted)}
    return [
        _job(dataclasses.replace(setting, slots=1), f"pilot-{number}", PILOT_ITERATIONS, folder, by_exec=True)
        for number, setting in enumerate(first.values())
    ]


def _speeds(samples: Samples, pilots: Sequence[MeasuringJob]) -> Mapping[str, float]:
    """Return the training samples per second on one slot by program, from the pilot jobs.

    Raises:
        EunomiaError: a pilot logged no steps.
    """
    found = {each.program: each.batch_size * each.steps / each.seconds for each in samples.rates}
    for job in pilots:
        if job.measures.program not in found:
            rule = "a program must log each of its steps, so that it can be measured"
            raise EunomiaError(rule, value=job.measures.program, place=str(job.source.path.parent))
    return found


def _jobs(
    wanted: Sequence[RateSetting], folder: Path, speeds: Mapping[str, float], effort: Effort
) -> list[MeasuringJob]:
    """Return the measuring jobs: all settings once, then all again for each further repeat."""
    return [
        _job(
            setting,
            f"{setting.program}-b{setting.batch_size}-s{setting.slots}-{repeat}",
            max(PILOT_ITERATIONS, round(effort.seconds * speeds[setting.program] / setting.batch_size)),
            folder,
        )
        for repeat in range(effort.repeats)
        for setting in wanted
    ]


def _job(setting: RateSetting, name: str, iterations: int, folder: Path, *, by_exec: bool = False) -> MeasuringJob:
    measures = MeasuredApp(program=setting.program, batch_size=setting.batch_size, slot_type=setting.slot_type)
    source = app_of(setting, name, iterations=iterations, folder=folder, by_exec=by_exec)
    return MeasuringJob(source=source, name=name, measures=measures)


def _run_all(run: ArbiterRun, jobs: Sequence[MeasuringJob], most: int) -> None:
    """Run jobs to their end, at most ``most`` at a time.

    Raises:
        EunomiaError: a job failed, or no job ended within ``LIMIT_SECONDS``.
    """
    left, names = deque(jobs), {job.name for job in jobs}
    ended, moved_at = 0, time.monotonic()
    while True:
        run.look()
        lives = [life for name, life in run.record.apps.items() if name in names]
        over = [life for life in lives if life.ended_at is not None]
        failed = [life.app for life in over if life.state != "finished"]
        if failed:
            raise EunomiaError(
                "a measuring job must finish",
                value=words_of_failure(failed[0], run.record.app_dir(failed[0])),
                place=str(run.folder),
            )
        if len(over) == len(jobs) and run.is_over:
            return
        if len(over) > ended:
            ended, moved_at = len(over), time.monotonic()
        if time.monotonic() - moved_at > LIMIT_SECONDS:
            rule = f"at least one measuring job must end within {LIMIT_SECONDS:g} s"
            raise EunomiaError(rule, value=f"{ended} of {len(jobs)} have", place=str(run.folder))
        if left and len(jobs) - len(left) - len(over) < most:
            job = left.popleft()
            run.submit_also(job.source)
            structlog.get_logger().info("measuring.submitted", app=job.name)
            continue
        time.sleep(LOOK_SECONDS)
