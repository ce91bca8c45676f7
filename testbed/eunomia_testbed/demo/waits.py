"""Derives waits of jobs with the arbiter's reasons, from a journal's events and decisions."""

import dataclasses
from collections.abc import Iterable, Iterator

from eunomia.contract.events import (
    AppCancelled,
    AppFinished,
    JobAdded,
    JobFailed,
    JobFinished,
    JobPaused,
    JobResumed,
    JobsDivided,
    in_order,
)
from eunomia.contract.verdicts import Reason
from eunomia.journal.journal import Step


@dataclasses.dataclass(slots=True, kw_only=True)
class Wait:
    """A period in Unix time in which a job wanted slots and had none, for one reason."""

    job: str
    start: float
    reason: str
    end: float | None = None
    stage: str | None = None
    plugin: str | None = None


def outside(wait: Wait, held: Iterable[tuple[float, float]], until: float) -> Iterator[Wait]:
    """Yield the parts of a wait that lie outside the periods in which the job's processes hold slots.

    An app master starts and ends processes somewhat before or after the journal has it.

    Args:
        wait: the wait; without an end it lasts until ``until`` and beyond.
        held: start and end of each period, Unix times.
        until: Unix time of the end of the record.
    """
    at, end = wait.start, until if wait.end is None else wait.end
    for start, over in sorted(held):
        if over <= at or start >= end:
            continue
        if start > at:
            yield dataclasses.replace(wait, start=at, end=start)
        at = over
    if at < end:
        yield dataclasses.replace(wait, start=at)


class Waits:
    """Derives waits from the steps of a journal."""

    def __init__(self) -> None:
        self.waits: list[Wait] = []
        self._now: dict[str, Wait] = {}
        self._alive: dict[str, str] = {}
        self._divided: dict[str, frozenset[str]] = {}
        self._leased: set[str] = set()
        """Jobs with a lease of their own."""

    @property
    def waiting(self) -> int:
        """Return the number of jobs that wait now, without those paused by their tuners."""
        return sum(wait.reason != Reason.PAUSED_BY_APP.word for wait in self._now.values())

    @property
    def running(self) -> int:
        """Return the number of jobs that run now."""
        return sum(map(len, self._divided.values()))

    def take(self, step: Step) -> None:
        """Apply one step."""
        for event in in_order(list(step.events)):
            self._fold(event, step.at)
        for order in step.decision.transitions:
            if order.job is not None and order.kind.effect.ends:
                self._leased.discard(str(order.job))
                self._wait(str(order.job), step.at, Reason.AWAITING_ROUND)
            elif order.job is not None:
                self._leased.add(str(order.job))
                self._end(str(order.job), step.at)
        for said in step.decision.waiting:
            job, running = str(said.job), self._runs(str(said.job))
            if said.reason is None:
                self._end(job, step.at)
            elif job in self._alive and not running:
                stage = None if said.stage is None else said.stage.value
                self._wait(job, step.at, said.reason, stage=stage, plugin=said.plugin or None)

    def _fold(self, event: object, at: float) -> None:
        match event:
            case JobAdded(job=job, app=app):
                self._alive[str(job)] = str(app)
                self._wait(str(job), at, Reason.AWAITING_ROUND)
            case JobResumed(job=job):  # its app may have resumed it on slots that the app kept
                if str(job) in self._alive and not self._runs(str(job)):
                    self._wait(str(job), at, Reason.AWAITING_ROUND)
            case JobPaused(job=job):
                self._stop([str(job)])
                self._wait(str(job), at, Reason.PAUSED_BY_APP)
            case JobFailed(job=job, again_in=again_in):
                self._stop([str(job)])
                if again_in is None:
                    self._over([str(job)], at)
                else:
                    self._wait(str(job), at, Reason.BACKING_OFF)
            case JobFinished(job=job):
                self._over([str(job)], at)
            case AppFinished(app=app) | AppCancelled(app=app):
                self._over([job for job, of in self._alive.items() if of == app], at)
            case JobsDivided(app=app, jobs=jobs):
                self._divide(str(app), frozenset(map(str, jobs)), at)

    def _divide(self, app: str, jobs: frozenset[str], at: float) -> None:
        before = self._divided.get(app, frozenset())
        self._divided[app] = jobs & self._alive.keys()
        for job in sorted(jobs):  # a set has another order in each process
            self._end(job, at)
        for job in sorted(before - jobs):
            if job in self._alive and job not in self._now:
                self._wait(job, at, Reason.AWAITING_ROUND)

    def _runs(self, job: str) -> bool:
        return job in self._leased or job in self._divided.get(self._alive.get(job, ""), frozenset())

    def _over(self, jobs: Iterable[str], at: float) -> None:
        for job in list(jobs):
            self._end(job, at)
            self._stop([job])
            self._alive.pop(job, None)

    def _stop(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self._leased.discard(job)
            app = self._alive.get(job, "")
            self._divided[app] = self._divided.get(app, frozenset()) - {job}

    def _wait(
        self, job: str, at: float, reason: Reason, *, stage: str | None = None, plugin: str | None = None
    ) -> None:
        known = self._now.get(job)
        if known is not None and (known.reason, known.plugin) == (reason.word, plugin):
            return
        self._end(job, at)
        wait = Wait(job=job, start=at, reason=reason.word, stage=stage, plugin=plugin)
        self._now[job] = wait
        self.waits.append(wait)

    def _end(self, job: str, at: float) -> None:
        wait = self._now.pop(job, None)
        if wait is not None:
            wait.end = at
