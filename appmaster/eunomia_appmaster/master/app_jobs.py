"""The jobs of an app as its app master knows them: trials of the tuner, with their logs and results."""

from collections.abc import Iterable, Sequence

import structlog

from eunomia.units import JobId
from eunomia_appmaster.master.endings import Ending, GangOutcome, last_line
from eunomia_appmaster.master.gangs import Surroundings
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.logs import JobLogs, never_logged
from eunomia_appmaster.node.stack_signal import STACKS_FOLDER
from eunomia_appmaster.tuner import TrialRun, Tuner

log = structlog.get_logger()


class AppJobs:
    """Jobs, logs and results of an app; one thread uses it.

    Args:
        around: the jobs' environment.
        tuner: of the search.
        jobs: of an earlier attempt of the app master.
    """

    def __init__(self, around: Surroundings, tuner: Tuner, jobs: Iterable[Job] = ()) -> None:
        self._around = around
        self.tuner = tuner
        self.jobs = {job.number: job for job in jobs}
        self.new_jobs: list[int] = []
        """Jobs not yet reported to the arbiter; the reporter empties it."""
        self.last = ""
        """The last event, shown to users."""
        self.last_stall = next((job.last_stall for job in self.jobs.values() if job.last_stall), "")
        """The last stall, shown to users; empty: there was none."""
        self.stall_warning = ""
        """What is wrong with the app file's limit on stalls, shown to users."""
        self._adopted = {number for number, job in self.jobs.items() if job.incarnation}
        self._logs: dict[int, JobLogs] = {}

    def add_new_trials(self) -> None:
        """Make a job of each trial that the tuner has added."""
        for trial in self.tuner.trials():
            if trial.number not in self.jobs:
                self.jobs[trial.number] = Job(
                    number=trial.number,
                    parameters=dict(trial.parameters),
                    seed=trial.seed,
                    rung=self.tuner.rung(trial.number),
                )
                self.new_jobs.append(trial.number)

    def best(self) -> Job | None:
        """Return the job with the best metric at any step, the first of equal ones; None: none logged a finite one."""
        better = self._around.file.search.better_first
        known = [(better(job.best), job.number) for job in self.jobs.values() if job.best is not None]
        return self.jobs[min(known)[1]] if known else None

    def id_of(self, number: int) -> JobId:
        """Return a job's id: ``app/number``."""
        return JobId(f"{self._around.app}/{number}")

    def done(self) -> dict[int, float]:
        """Return iterations done by trial."""
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
        """Return whether the search has ended and no gang is left."""
        return self.tuner.is_done() and not any(job.gang for job in self.jobs.values())

    def failure(self) -> str | None:
        """Return why the app failed: all its jobs failed, or none has a metric that its tuner could compare."""
        failed = [job for job in self.jobs.values() if job.state is JobState.FAILED]
        if failed and len(failed) == len(self.jobs):
            return failed[0].why if len(failed) == 1 else f"all {len(failed)} jobs failed; the last: {failed[-1].why}"
        if self.tuner.needs_metric and self.tuner.best() is None:
            return f'metric "{self._around.file.search.metric}" must be finite in some trial, but was so in none'
        return None

    def goal(self, run: TrialRun | None) -> int | None:
        """Return the iteration at which a run ends: its rung, else the whole work; None: not known."""
        return run.stop_at if run is not None and run.stop_at is not None else self._around.file.search.max_iterations

    def _explained(self, job: Job, ending: Ending) -> str:
        errors = self._around.app_dir / str(job.number) / "stderr.log"
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
        """Record that the runtime ends a job's gang, which has stalled."""
        job.stalls += 1
        gang.ordered = why
        job.state = JobState.STOPPING
        self.last_stall = job.last_stall = f"{self.id_of(job.number)} {why}; stacks are in {self._stacks(job)}"
        log.warning("job.stalled", job=self.id_of(job.number), why=why, stacks=self._stacks(job))
        self._note("stalled", job, now)

    @property
    def stalls(self) -> int:
        """Number of gangs of the app that were ended as stalled."""
        return sum(job.stalls for job in self.jobs.values())

    def _stacks(self, job: Job) -> str:
        return str(self._around.app_dir / str(job.number) / STACKS_FOLDER)

    def _note(self, event: str, job: Job, now: float, slots: Sequence[int] = (), *, step: int | None = None) -> None:
        gpus = slots or (job.gang.gpus if job.gang else ())
        self._around.activity.note(event, job, now, slots=gpus, step=step)
        self.last = f"{self.id_of(job.number)} {event} at {job.step if step is None else step}"
