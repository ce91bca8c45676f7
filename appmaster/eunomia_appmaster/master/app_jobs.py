"""The jobs of an app as its app master knows them: trials of the tuner, with their logs and results."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import structlog

from eunomia.units import JobId
from eunomia_appmaster.app.outputs import STDERR, newest_output
from eunomia_appmaster.master.cached_tuner import CachedTuner
from eunomia_appmaster.master.endings import Ending, GangOutcome, last_line
from eunomia_appmaster.master.gangs import Surroundings
from eunomia_appmaster.master.job_index import JobIndex
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.logs import JobLogs, never_logged
from eunomia_appmaster.node.stack_signal import STACKS_FOLDER
from eunomia_appmaster.tuner import TrialRun, Tuner

log = structlog.get_logger()

SOON_SECONDS = 5.0
"""Seconds for which slots are reserved for a failed job before its retry, or for a job that widening may speed up."""


class AppJobs:
    """The jobs, logs and results of an app; not thread-safe.

    Args:
        around: the objects that all jobs of the app share.
        tuner: decides which trials run.
        jobs: saved by an earlier attempt of the app master.
    """

    def __init__(self, around: Surroundings, tuner: Tuner, jobs: Iterable[Job] = ()) -> None:
        self._around = around
        self.tuner = CachedTuner(tuner)
        self.jobs = JobIndex(jobs)
        self._best: Job | None = None
        self._with_new_best = self.jobs.follow("best")
        self.new_jobs: list[int] = []
        """Jobs not yet reported to the arbiter; the reporter empties it."""
        self.last = ""
        """The last event of the app, as text for users."""
        self.last_stall = next((job.last_stall for job in self.jobs.values() if job.last_stall), "")
        """The last stall of the app, as text for users; empty: there was none."""
        self.stall_warning = ""
        """A warning for users about the app file's stall limit; empty: none."""
        self._stalls = sum(job.stalls for job in self.jobs.values())
        self._closed_at = -1
        """Number of reports to the tuner when ``_to_close`` was computed."""
        self._to_close: set[int] = set()
        """Trials that the tuner had ended by the last report to it, and whose jobs have not ended."""
        self._adopted = {number for number, job in self.jobs.items() if job.incarnation}
        self._logs: dict[int, JobLogs] = {}

    def add_new_trials(self) -> None:
        """Create a job for each trial that the tuner has added."""
        for trial in self.tuner.trials()[len(self.jobs) :]:  # they are numbered from 1 without gaps
            rung = self.tuner.rung(trial.number)
            self.jobs.add(Job(number=trial.number, parameters=dict(trial.parameters), seed=trial.seed, rung=rung))
            self.new_jobs.append(trial.number)

    def best(self) -> Job | None:
        """Return the job with the best metric at any step, the first in a tie; None: none logged a finite metric."""
        better = self._around.file.search.better_first
        candidates = [*self._with_new_best.take(), *([] if self._best is None else [self._best])]
        known = [(better(job.best), job.number) for job in candidates if job.best is not None]
        self._best = self.jobs[min(known)[1]] if known else None
        return self._best

    def id_of(self, number: int) -> JobId:
        """Return a job's id: ``app/number``."""
        return JobId(f"{self._around.app}/{number}")

    def done(self) -> dict[int, float]:
        """Return the number of iterations done, by trial."""
        return {number: float(job.step) for number, job in self.jobs.items()}

    def logs(self, number: int) -> JobLogs:
        """Return the reader of a job's event files."""
        if number not in self._logs:
            folder = self._around.app_dir / str(number) / "logs"
            self._logs[number] = JobLogs(
                self.id_of(number), folder, self._around.file.search.metric, adopted=number in self._adopted
            )
        return self._logs[number]

    @property
    def is_over(self) -> bool:
        """Return whether the search has ended and no gang remains."""
        return self.tuner.is_done() and not self.jobs.with_gang()

    def failure(self) -> str | None:
        """Return why the app failed: all its jobs failed, or none has a metric to compare; None: it has not failed."""
        failed = [job for job in self.jobs.values() if job.state is JobState.FAILED]
        if failed and len(failed) == len(self.jobs):
            return failed[0].why if len(failed) == 1 else f"all {len(failed)} jobs failed; the last: {failed[-1].why}"
        if self.tuner.needs_metric and self.tuner.best() is None:
            return f'metric "{self._around.file.search.metric}" must be finite in some trial, but was so in none'
        return None

    def goal(self, run: TrialRun | None) -> int | None:
        """Return the iteration at which a run ends: that of its rung, else of the job's last one; None: not known."""
        return run.stop_at if run is not None and run.stop_at is not None else self._around.file.search.max_iterations

    def _runs_with_gang(self, runs: Mapping[int, TrialRun]) -> list[TrialRun]:
        """Return the runs of jobs that have a gang, in the tuner's order."""
        numbers = [job.number for job in self.jobs.with_gang() if job.number in runs]
        return [runs[number] for number in sorted(numbers, key=self.tuner.rank)]

    def _may_start(self, runs: Mapping[int, TrialRun], named: Collection[int], free: int) -> list[TrialRun]:
        """Return the waiting runs to start, in the tuner's order: those whose smallest gangs fit the free GPUs."""
        waiting, chosen = self.jobs.numbers_in(JobState.WAITING), list[TrialRun]()
        smallest = self.tuner.smallest
        for number, run in runs.items() if waiting else ():
            if free < smallest:
                break
            if number in waiting and number not in named and run.least <= free:
                chosen.append(run)
                free -= run.least
        return chosen

    def _back_soon(self, now: float) -> list[Job]:
        """Return the failed jobs whose retry is less than ``SOON_SECONDS`` away."""
        return [job for job in self.jobs.in_state(JobState.BACKING_OFF) if job.retry_at - now < SOON_SECONDS]

    def _wake_retries(self, now: float) -> None:
        for job in self.jobs.in_state(JobState.BACKING_OFF):
            if now >= job.retry_at:
                job.state = JobState.WAITING

    def _ended_by_tuner(self) -> list[Job]:
        """Return the jobs without a gang that have not ended although the tuner has ended their trials."""
        if self._closed_at != self.tuner.reports:
            self._closed_at, self._to_close = self.tuner.reports, set(self.tuner.ended())
        self._to_close = {number for number in self._to_close if not self.jobs[number].state.over}
        return [self.jobs[number] for number in sorted(self._to_close) if self.jobs[number].gang is None]

    def _explained(self, job: Job, ending: Ending) -> str:
        errors = newest_output(self._around.app_dir / str(job.number), STDERR)
        try:
            with errors.open("rb") as file:
                file.seek(max(errors.stat().st_size - 4096, 0))
                line = last_line(file.read().decode("utf-8", "replace"))
        except OSError:
            line = ""
        return f"{ending.why}: {line}" if line and ending.outcome is GangOutcome.FAILED else ending.why

    def _never_logged(self, job: Job) -> str:
        return never_logged(self._around.file.search.metric or "", self.id_of(job.number), self.logs(job.number).tags())

    def _final_metric(self, job: Job, until: int | None) -> float | None:
        point = self.logs(job.number).last(until) or self.logs(job.number).last()
        if point is not None:
            job.metric = point.value
        return None if point is None else point.value

    def stalled(self, job: Job, gang: Gang, why: str, now: float) -> None:
        """Record that the runtime ends a job's gang because it has stalled."""
        gang.ordered = why
        job.state = JobState.STOPPING
        self._count_stall(job, why)
        self._note("stalled", job, now)

    def stalled_apart(self, job: Job, why: str, now: float) -> None:
        """Record that the runtime ends stalled workers of a job, whose gang goes on without them."""
        self._count_stall(job, why)
        self._note("left_out", job, now, why=why)

    def _count_stall(self, job: Job, why: str) -> None:
        job.stalls += 1
        self._stalls += 1
        self.last_stall = job.last_stall = f"{self.id_of(job.number)} {why}; stacks are in {self._stacks(job)}"
        log.warning("job.stalled", job=self.id_of(job.number), why=why, stacks=self._stacks(job))

    @property
    def stalls(self) -> int:
        """Number of stalls in the app; each ended a gang, or workers without which their gang goes on."""
        return self._stalls

    def _stacks(self, job: Job) -> str:
        return str(self._around.app_dir / str(job.number) / STACKS_FOLDER)

    def _note(
        self,
        event: str,
        job: Job,
        at: float,
        slots: Sequence[int] = (),
        *,
        step: int | None = None,
        why: str = "",
        pause_seconds: float | None = None,
    ) -> None:
        gpus = slots or (job.gang.trained_on if job.gang else ())
        self._around.activity.note(event, job, at, slots=gpus, step=step, why=why, pause_seconds=pause_seconds)
        self.last = f"{self.id_of(job.number)} {event} at {job.step if step is None else step}"
