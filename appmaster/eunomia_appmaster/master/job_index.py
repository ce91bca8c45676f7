"""The jobs of an app by number, with indexes updated at each change, so that no lookup scans all jobs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from eunomia_appmaster.master.jobs import Job, JobState


class ChangedJobs:
    """The jobs to whose attributes a value was assigned since the last ``take``; at first all jobs.

    Changes inside a gang, or inside a list or mapping of a job, are not recorded; ``JobIndex.with_gang`` covers changes
    of gangs.

    Args:
        attributes: names of the attributes; empty: all attributes.
    """

    def __init__(self, attributes: Iterable[str] = ()) -> None:
        self._attributes = frozenset(attributes)
        self._changed: dict[int, Job] = {}

    def note(self, job: Job, attribute: str) -> None:
        """Record an assignment to a job's attribute."""
        if not self._attributes or attribute in self._attributes:
            self._changed[job.number] = job

    def add_all(self, jobs: Iterable[Job]) -> None:
        """Record jobs as changed."""
        self._changed |= {job.number: job for job in jobs}

    def take(self) -> list[Job]:
        """Return the changed jobs in ascending order, and clear the record."""
        changed, self._changed = self._changed, {}
        return [changed[number] for number in sorted(changed)]


class JobIndex(Mapping[int, Job]):
    """Jobs by number, in ascending order.

    Args:
        jobs: saved by an earlier attempt of the app master.
    """

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._jobs: dict[int, Job] = {}
        self._in_state: defaultdict[JobState, set[int]] = defaultdict(set)
        self._state: dict[int, JobState] = {}
        self._with_gang: set[int] = set()
        self._followers: list[ChangedJobs] = []
        for job in sorted(jobs, key=lambda job: job.number):
            self.add(job)

    def add(self, job: Job) -> None:
        """Add a job, whose number must be the highest."""
        self._jobs[job.number] = job
        job.observer = self._changed
        self._changed(job, "state")
        self._changed(job, "gang")
        for follower in self._followers:
            follower.add_all([job])

    def follow(self, *attributes: str) -> ChangedJobs:
        """Return a new record of the jobs whose ``attributes`` change; see ``ChangedJobs``."""
        made = ChangedJobs(attributes)
        made.add_all(self._jobs.values())
        self._followers.append(made)
        return made

    def in_state(self, state: JobState) -> list[Job]:
        """Return the jobs in a state, in ascending order."""
        return [self._jobs[number] for number in sorted(self._in_state[state])]

    def numbers_in(self, state: JobState) -> frozenset[int] | set[int]:
        """Return the numbers of the jobs in a state; the caller must not change the set."""
        return self._in_state[state]

    def with_gang(self) -> list[Job]:
        """Return the jobs that have a gang, in ascending order."""
        return [self._jobs[number] for number in sorted(self._with_gang)]

    def _changed(self, job: Job, attribute: str) -> None:
        number = job.number
        if attribute == "state":
            before = self._state.get(number)
            if before is not None:
                self._in_state[before].discard(number)
            self._state[number] = job.state
            self._in_state[job.state].add(number)
        elif attribute == "gang":
            (self._with_gang.discard if job.gang is None else self._with_gang.add)(number)
        for follower in self._followers:
            follower.note(job, attribute)

    def __getitem__(self, number: int) -> Job:
        """Return the job with a number, or raise ``KeyError``."""
        return self._jobs[number]

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers in ascending order."""
        return iter(self._jobs)

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self._jobs)

    def __contains__(self, number: object) -> bool:
        """Return whether there is a job with this number."""
        return number in self._jobs
