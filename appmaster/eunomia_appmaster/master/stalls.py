"""Ends running jobs that have stalled: watches their progress, and has the runtime end gangs without progress."""

from collections.abc import Callable

import structlog

from eunomia.units import format_duration
from eunomia_appmaster.master.conductor import Conductor
from eunomia_appmaster.master.gangs import Surroundings
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.node.stall_watch import LEAST_STEPS, Observed, Phase, StallWatch
from eunomia_appmaster.runtimes.runtime import ContainerStatus

log = structlog.get_logger()


class StalledJobs:
    """Watches an app's jobs for stalls.

    Args:
        around: the objects that all jobs of the app share.
        conductor: runs the jobs.
        rate: returns a job's measured iterations per second; 0: not known.
        clock: returns the machine's uptime in seconds.
    """

    def __init__(
        self, around: Surroundings, conductor: Conductor, rate: Callable[[Job], float], clock: Callable[[], float]
    ) -> None:
        self._around = around
        self._conductor = conductor
        self._rate = rate
        self._watch = StallWatch(around.file.job.stall_limits, clock)
        self._signs_before: dict[int, tuple[int, int]] = {}
        """By job, its incarnation, and its count of signs of progress when that incarnation was first seen."""
        self._warned: set[int] = set()

    def look(self, now: float) -> None:
        """End the gangs that have stalled; ``now``: Unix time in seconds."""
        if self._watch.tick():
            log.info("stalls.begin_again", why="this app master did not run for a while")
        running = set()
        for job in self._conductor.jobs.with_gang():
            gang = job.gang
            if gang is None or not gang.confirmed or gang.ordered or job.state is not JobState.RUNNING:
                continue
            running.add(job.number)
            self._look_at(job, gang, now)
        self._watch.keep_only(running)

    def _look_at(self, job: Job, gang: Gang, now: float) -> None:
        seen = self._seen(job, gang)
        self._warn(job, seen.step_seconds)
        stall = self._watch.look(job.number, seen)
        if stall is None:
            return
        why = f"stalled: {stall.words()}"
        awaited = self._conductor.awaited_workers(job, gang)
        if self._conductor.gangs.end_stalled(gang, stall.limit_seconds, why, only=awaited):
            if awaited:
                self._conductor.leave_out(job, gang, awaited, why, now)
                self._watch.forgive(job.number)
            else:
                self._conductor.stalled(job, gang, why, now)
        else:  # the launcher has seen progress, or has not watched for that long
            self._watch.forgive(job.number)

    def _seen(self, job: Job, gang: Gang) -> Observed:
        statuses = [status for status in self._conductor.gangs.statuses(gang) if not status.completed]
        incarnation, signs = self._signs_before.get(job.number, (0, 0))
        if incarnation != gang.incarnation:
            signs = job.signs
            self._signs_before[job.number] = gang.incarnation, signs
        rate = self._rate(job)
        said = tuple((status.pulses, status.step, status.saved_step, status.hello) for status in statuses)
        return Observed(
            news=(gang.incarnation, job.step, job.signs, said),
            phases=tuple(_phase(status, helper=job.has_helper) for status in statuses),
            step_seconds=1.0 / rate if rate > 0.0 else None,
            logged=job.signs > signs,
        )

    def _warn(self, job: Job, step_seconds: float | None) -> None:
        """Warn once that ``stall_after`` is shorter than a job's steps."""
        limits = self._watch.limits
        if job.number in self._warned or step_seconds is None or not limits.too_short_for(step_seconds):
            return
        self._warned.add(job.number)
        given, step = format_duration(limits.after or 0.0), format_duration(step_seconds)
        self._conductor.stall_warning = (
            f'stall_after must be at least {LEAST_STEPS:g} steps, but got "{given}" while a step of '
            f"{self._conductor.id_of(job.number)} takes {step}; {LEAST_STEPS:g} steps are waited for"
        )
        log.warning("stall_after.too_short", why=self._conductor.stall_warning)


def _phase(status: ContainerStatus, *, helper: bool) -> Phase:
    """Return the phase of a worker; if its script uses the helper, it is starting until the helper has reported."""
    if status.phase is Phase.UNKNOWN and helper and not status.hello:
        return Phase.START
    return status.phase
