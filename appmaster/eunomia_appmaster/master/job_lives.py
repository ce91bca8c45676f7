"""The life cycle of jobs: state changes after a gang's end or a decision of the tuner."""

from collections.abc import Sequence

import structlog

from eunomia_appmaster.master.app_jobs import AppJobs
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.outbox import Life
from eunomia_appmaster.tuner import TrialRun

log = structlog.get_logger()

RETRY_SECONDS = 1.0
"""Pause in seconds after a first failure; it doubles with each further one, up to ``LONGEST_RETRY_SECONDS``."""
LONGEST_RETRY_SECONDS = 60.0


class JobLives(AppJobs):
    """Changes the states of an app's jobs, and reports the changes to the arbiter and the tuner."""

    # --- after the end of a gang: `at` is when its last worker ended, by the arbiter's clock -----------------------

    def _finish(self, job: Job, gang: Gang, at: float) -> None:
        metric = self._final_metric(job, None)
        if metric is None and self.tuner.needs_metric:
            self._fail_for_good(job, gang, self._never_logged(job), at)
            return
        job.state, job.why = JobState.FINISHED, ""
        self._note("finished", job, at, gang.trained_on)
        self._around.outbox.put("lives", Life(what="finished"), key=self.id_of(job.number))
        self.tuner.on_finished(job.number, job.step, metric)

    def _pause_at_rung(self, job: Job, gang: Gang, at: float) -> None:
        metric = self._final_metric(job, gang.stop_at)
        if metric is None and self.tuner.needs_metric:
            self._fail_for_good(job, gang, self._never_logged(job), at)
            return
        job.state = JobState.PAUSED
        self._note("paused", job, at, gang.trained_on)
        self._around.outbox.put("lives", Life(what="paused"), key=self.id_of(job.number))
        self.tuner.on_paused(job.number, job.step, metric)

    def _suspended(self, job: Job, gang: Gang, at: float, why: str) -> None:
        if job.number in self.tuner.ended():
            self._stopped(job, at, gang.trained_on)
            return
        job.suspensions += 1
        job.state = JobState.WAITING
        self._note("suspended", job, at, gang.trained_on, why=why)
        if job.number not in self.tuner.runs():
            job.state = JobState.PAUSED
            self._around.outbox.put("lives", Life(what="paused"), key=self.id_of(job.number))

    def _failed(
        self, job: Job, gang: Gang, why: str, now: float, *, counted: bool = True, at: float | None = None
    ) -> None:
        """Retry a failed job after a pause; a new checkpoint since the last failure resets the count of retries.

        Args:
            job: the job that failed.
            gang: its gang, which has ended.
            why: the reason, for users.
            now: Unix time in seconds.
            counted: whether the failure uses one of the job's retries; an end by the machine or a signal does not.
            at: Unix time of the gang's end; None: now.
        """
        if counted:
            checkpoint = self._around.store(job).latest()
            saved = 0 if checkpoint is None else checkpoint.step
            job.failures = 1 if saved > job.failed_at_save and job.failed_at_save >= 0 else job.failures + 1
            job.failed_at_save = saved
        if counted and job.failures > self._around.file.job.retries:
            self._fail_for_good(job, gang, why, now if at is None else at)
            return
        times = job.failures if counted else min(len(job.interruptions), 10)
        pause = min(RETRY_SECONDS * 2.0 ** (times - 1), LONGEST_RETRY_SECONDS)
        job.state, job.why, job.retry_at = JobState.BACKING_OFF, why, now + pause
        self._note("failed", job, now if at is None else at, gang.trained_on, why=why)
        log.warning("job.failed", job=self.id_of(job.number), why=why, again_in_seconds=pause)
        self._around.outbox.put("lives", Life(what="failed", again_in=pause, why=why), key=self.id_of(job.number))

    def _fail_for_good(self, job: Job, gang: Gang, why: str, at: float) -> None:
        job.state, job.why = JobState.FAILED, why
        self._note("failed", job, at, gang.trained_on, why=why)
        log.error("job.failed", job=self.id_of(job.number), why=why)
        self._around.outbox.put("lives", Life(what="failed", why=why), key=self.id_of(job.number))
        self.tuner.on_failed(job.number)

    def _close_ended(self, now: float) -> None:
        """Apply the tuner's decisions: trials that it added, ended or promoted."""
        self.add_new_trials()
        for job in self._ended_by_tuner():
            self._stopped(job, now)
        runs = self.tuner.runs()
        back = [number for number in self.jobs.numbers_in(JobState.PAUSED) if number in runs]
        for number in sorted(back, key=self.tuner.rank):
            self._resume(self.jobs[number], runs[number], now)

    def _stopped(self, job: Job, now: float, gpus: Sequence[int] = ()) -> None:
        """End a job whose trial the tuner has ended."""
        job.state, job.why = JobState.STOPPED, ""
        self._note("stopped", job, now, gpus)
        self._around.outbox.put("lives", Life(what="finished"), key=self.id_of(job.number))

    def _resume(self, job: Job, run: TrialRun, now: float) -> None:
        job.state = JobState.WAITING
        rung = self.tuner.rung(job.number)
        if rung != job.rung:
            job.rung = rung
            self._note("promoted", job, now)
        goal = self.goal(run)
        life = Life(what="resumed", iterations=None if goal is None else float(goal))
        self._around.outbox.put("lives", life, key=self.id_of(job.number))
