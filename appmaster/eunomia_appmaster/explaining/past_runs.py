"""Explains why jobs of a finished or running run waited, by replaying its journal up to any past time."""

import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from eunomia.arbiter import Arbiter, ClusterView
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, JobPaused
from eunomia.errors import InputError
from eunomia.explain.explaining import Explainer
from eunomia.journal.journal import Step, read_journal
from eunomia.model.leases import LeaseState
from eunomia.model.workload import JobState
from eunomia.platform.profiles import Profile
from eunomia.units import NONE, JobId, Seconds
from eunomia_appmaster.app.names import in_order, no_such_job
from eunomia_appmaster.app.outputs import STDERR, newest_output
from eunomia_appmaster.explaining.activity import ActivityLog, Line
from eunomia_appmaster.explaining.explanations import add_reasons, describe
from eunomia_appmaster.explaining.interrupted import gaps, with_gaps
from eunomia_appmaster.explaining.replay import JOURNAL, arbiter_of, oldest_checkpoint, profile_of
from eunomia_appmaster.explaining.spells import Spell, Spells, through_changes
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.app_record import NOTE
from eunomia_appmaster.service.layout import MACHINE_NOTE, Layout

ROUNDS_KEPT = 64


class PastRun:
    """A run read from its folder.

    Args:
        folder: folder with a ``journal.sqlite``. If retention has dropped the journal's first steps, the run begins at
            the oldest checkpoint.

    Raises:
        InputError: the folder has no journal, or the run has not begun.
    """

    def __init__(self, folder: Path) -> None:
        with read_journal(folder / JOURNAL) as journal:
            meta, self.steps = journal.meta, list(journal.steps())
            self._notes = journal.notes(NOTE)
            machines = journal.notes(MACHINE_NOTE)
            self._begun = oldest_checkpoint(journal)
        if self._begun is not None:
            self.steps = [step for step in self.steps if step.number > self._begun.after_step]
        if "layout" not in meta or "profile" not in meta or not self.steps:
            raise InputError("a run must have begun to be explained", value="no step yet", place=str(folder / JOURNAL))
        self.layout = Layout.decoded(meta["layout"]).with_notes(machines)
        self._meta = meta
        self._profile = profile_of(meta)
        self._folder = folder
        self._place = str(folder / JOURNAL)
        self.explained_at: dict[str, float] = {}
        """Time of a job's last explanation, by job, in seconds since the arbiter's start."""

    def explanations(self, name: str, at: float | None = None) -> list[pb.Explanation]:
        """Explain why a job waited, or each job of an app.

        Args:
            name: name of a job or an app.
            at: seconds since the arbiter's start; None: for each job, the last moment at which it waited.

        Raises:
            InputError: there was no such job, or it did not exist at that moment.
        """
        stops = self._last_waits(name) if at is None else self._all_at(name, at)
        if not stops:
            self._check(name)
            rule = f"a job must have been in the run at {at or 0.0:g} s to be explained"
            raise InputError(rule, value=f'"{name}"', place=self._place)
        found: dict[str, pb.Explanation] = {}
        for number, arbiter, rounds in self._folded():
            jobs = [job for job, stop in stops.items() if stop == number]
            if jobs:
                now = float(arbiter.view.now) if at is None else at
                self.explained_at |= dict.fromkeys(jobs, now)
                found |= {one.job: one for one in self._explained(arbiter, rounds, jobs, now)}
        return [found[job] for job in stops] + (self._failed(name) if at is None else [])

    def _failed(self, name: str) -> list[pb.Explanation]:
        """Return explanations of the permanently failed jobs of a name, with their last errors."""
        app = name.partition("/")[0]
        note = self._notes.get(app) or {}
        return [
            pb.Explanation(
                job=job,
                app=app,
                user=str(note.get("user", "")),
                state="failed",
                text=why,
                log=str(newest_output(self._folder / "apps" / app / job.rpartition("/")[2], STDERR)),
            )
            for job, why in note.get("failures", {}).items()
            if _named(job, name)
        ]

    def _check(self, name: str) -> None:
        """Check that a job or app of this name existed at any time.

        Raises:
            InputError: there was no such job or app; the message lists the existing names.
        """
        jobs = dict.fromkeys(job for _, arbiter, _ in self._folded() for job in arbiter.view.names.jobs)
        if any(_named(job, name) for job in jobs):
            return
        arrived = [event.app for step in self.steps for event in step.events if isinstance(event, AppArrived)]
        apps = dict.fromkeys([*arrived, *(job.rpartition("/")[0] for job in jobs)])
        mine = [job for job in jobs if _named(job, name.partition("/")[0])]
        raise no_such_job(name, in_order(mine), list(map(str, apps)), place=self._place)

    def history(self, name: str) -> list[Spell]:
        """Return the periods of a job, or of each job of an app, in order.

        A job that changes its size live runs through the change, and has a period at each size. Periods in which a job
        held slots without a worker are ``interrupted``, if app masters recorded them. Periods in which its app was
        suspended have the cause as text.

        Raises:
            InputError: there was no such job.
        """
        seen, causes = Spells(), dict[str, str]()
        for step, (_, arbiter, _) in zip(self.steps, self._folded(), strict=True):
            causes |= {str(event.job): event.suspended for event in step.events if isinstance(event, JobPaused)}
            seen.take(arbiter.view, float(arbiter.view.now), causes, step.events)
        mine: dict[str, list[Spell]] = {}
        for spell in seen.spells:
            if _named(spell.job, name):
                mine.setdefault(spell.job, []).append(spell)
        if not mine:
            self._check(name)
        noted = self._noted(name.partition("/")[0])
        return [
            spell
            for job, spells in mine.items()
            for spell in with_gaps(
                [each for each in through_changes(spells) if each.end != each.start],
                gaps(noted.get(job, ())),
                self._clock,
            )
        ]

    def _noted(self, app: str) -> dict[str, list[Line]]:
        """Return the events that the masters of an app recorded, by job; empty if the app's folder does not exist."""
        made: dict[str, list[Line]] = {}
        for line in ActivityLog(self._folder / "apps" / app, app).poll():
            made.setdefault(line.job, []).append(line)
        return made

    def _clock(self, unix_time: float) -> float:
        """Return the arbiter's time at a Unix time, converted by the last step before it."""
        step = self.steps[max(0, bisect.bisect_right(self.steps, unix_time, key=lambda step: step.at) - 1)]
        return float(step.now) + unix_time - step.at

    def _folded(self) -> Iterator[tuple[int, Arbiter, Sequence[Decision]]]:
        """Yield the arbiter after each replayed step, with the decisions of the last rounds."""
        arbiter = arbiter_of(self._meta, self._begun, profile=self._profile)
        rounds: deque[Decision] = deque(maxlen=ROUNDS_KEPT)
        for step in self.steps:
            arbiter.replay(step.now, step.events, step.decision)
            if step.decision.causes:
                rounds.append(step.decision)
            yield step.number, arbiter, rounds

    def _last_waits(self, name: str) -> dict[str, int]:
        """Return, by job, the last step after which the job waited; if it never did, the last one with the job."""
        stops: dict[str, tuple[int, int]] = {}
        for number, arbiter, _ in self._folded():
            for job, row in arbiter.view.names.jobs.items():
                if _named(job, name):
                    stops[job] = max(stops.get(job, (0, 0)), (_weight(arbiter.view, row), number))
        return {job: number for job, (_, number) in stops.items()}

    def _all_at(self, name: str, at: float) -> dict[str, int]:
        last: Step | None = None
        jobs: list[str] = []
        for step, (_, arbiter, _) in zip(self.steps, self._folded(), strict=True):
            if float(step.now) > at:
                break
            last, jobs = step, [job for job in arbiter.view.names.jobs if _named(job, name)]
        return {} if last is None else dict.fromkeys(jobs, last.number)

    def _explained(
        self, arbiter: Arbiter, rounds: Sequence[Decision], jobs: Sequence[str], now: float
    ) -> list[pb.Explanation]:
        view = arbiter.view
        cluster = view.cluster
        explainer = Explainer(
            arbiter.save(),
            cluster,
            self._profile.stages(cluster),
            Profile.fallback().stages(cluster),
            rounds,
            Seconds(now),
        )
        messages = [describe(view, view.job_row(JobId(job)), now) for job in jobs]
        add_reasons(explainer, messages, self.layout)
        return messages


def _named(job: str, name: str) -> bool:
    return job == name or job.rpartition("/")[0] == name


def _weight(view: ClusterView, row: int) -> int:
    """Rank a point in time: highest if the job waits and no slot is reserved for it, then other waits, then pauses."""
    kind = JobState(int(view.jobs.state[row]))
    if kind is JobState.WAITING:
        under_way = view.leaving or _granted(view, int(view.jobs.app[row]))
        return 2 if under_way else 3
    return 1 if kind is JobState.PAUSED else 0


def _granted(view: ClusterView, app: int) -> bool:
    """Return whether the job's app has idle slots that its tuner has not assigned yet."""
    held = view.gpus
    shared = [lease for lease in view.leases_of(app) if lease.job == NONE and lease.state is not LeaseState.LEAVING]
    return any(bool((held.job[lease.gpus] == NONE).any()) for lease in shared)
