"""Helpers shared by the folds of all kinds of event."""

import dataclasses
from collections.abc import Sequence

from eunomia.contract.decisions import Fault, Transition, TransitionKind
from eunomia.contract.events import Event, JobFinished, SingleJobEnded
from eunomia.contract.verdicts import Reason
from eunomia.errors import InputError
from eunomia.model.leases import Lease, LeaseState
from eunomia.model.workload import JobState
from eunomia.state.revoking import revoke
from eunomia.state.state import State
from eunomia.units import NONE, AppId, Cause, Ints, JobId, Seconds


@dataclasses.dataclass(slots=True)
class Folded:
    """The result of folding a step's events: orders for executors, and the events that were refused."""

    orders: list[Transition]
    refused: list[Fault]


JOB_ENDED = "an event must name a job that has not ended"
"""The rule that a report breaks if it comes after its job's end, which is usual where reports and ends cross."""


class EventError(InputError):
    """An event that contradicts the state; it changes nothing."""


class Folding:
    """Folds one step's events into the state and collects the orders that follow for executors."""

    __slots__ = ("_ending", "_events", "folded", "grace", "state")

    def __init__(self, state: State, folded: Folded, grace: Seconds, events: Sequence[Event]) -> None:
        self.state = state
        self.folded = folded
        self.grace = grace
        self._events = events
        self._ending: set[JobId] | None = None

    def ends(self, job: JobId) -> bool:
        """Return whether a job ends in this step, and so must not wait again."""
        if self._ending is None:
            self._ending = {event.job for event in self._events if isinstance(event, JobFinished | SingleJobEnded)}
        return job in self._ending

    def app(self, app: AppId) -> int:
        """Row of an app that has not ended; EventError if there is none of this id."""
        row = self.state.app_rows.get(app, NONE)
        if row == NONE or self.state.apps.cells.ended[row]:
            raise EventError("an event must name an app that has not ended", value=f'"{app}"')
        return row

    def job(self, job: JobId) -> int:
        """Row of a job; EventError if there is none of this id."""
        row = self.state.job_rows.get(job, NONE)
        if row == NONE:
            raise EventError(JOB_ENDED, value=f'"{job}"')
        return row

    def time(self, at: Seconds) -> Seconds:
        """Time of an event: its own time, but at most the step's (an executor's clock may be ahead)."""
        now = self.state.now
        return at if at < now else now  # NaN: the event carries no time

    def leave(self, lease: Lease, gpus: Ints, *, kind: TransitionKind = TransitionKind.SUSPEND) -> None:
        """Make a lease give GPUs back, and add the order for executors."""
        order = revoke(self.state, lease, gpus, kind=kind, deadline=Seconds(self.state.now + self.grace))
        if order is not None:
            self.folded.orders.append(order)

    def leave_all(self, job: int) -> None:
        """Make the job's own lease give all its GPUs back."""
        lease = self.state.leases.get(self.state.jobs.cells.lease[job])
        if lease is not None and lease.state is not LeaseState.LEAVING:
            self.leave(lease, lease.gpus)

    def undivide(self, job: int) -> None:
        """Take the job off the GPUs that its app's tuner assigned to it."""
        jobs = self.state.jobs.live
        if jobs.lease[job] == NONE:
            self.state.clear(job)
            jobs.gpus[job] = 0

    def remove_job(self, job: int) -> None:
        """Drop a job; its GPUs have to come back."""
        state = self.state
        held = state.jobs.cells.lease
        if held[job] != NONE:
            self.leave_all(job)
        state.clear(job)
        lease = state.leases.get(held[job]) if held[job] != NONE else None
        if lease is not None:
            lease.job = NONE
        state.drop_job(job)

    def end_app(self, app: int, outcome: str) -> None:
        """End an app with all its jobs and leases."""
        state = self.state
        for job in sorted(state.standing.jobs_of.get(app, ())):
            self.remove_job(job)
        for lease in state.app_leases(app):
            if lease.state is not LeaseState.LEAVING:
                self.leave(lease, lease.gpus)
        state.service.add_app(app, state.now)
        state.touch(app=app)
        state.cause(_LEFT)
        close_app(state, app, outcome)


def close_app(state: State, app: int, outcome: str) -> None:
    """End an app without jobs; it is dropped once it has given back all its GPUs."""
    if state.open is not None:
        state.open.bids.pop(app, None)
    state.outcomes[state.app_id(app)] = outcome
    state.apps.cells.ended[app] = 1
    standing = state.standing
    leaves = bool(standing.leases_of.get(app))
    if leaves:
        state.keep_contention(app)
    standing.present -= 1
    if not leaves:
        state.drop_app(app)


_AWAITING_ROUND = int(Reason.AWAITING_ROUND)
_WAITING = JobState.WAITING
_ARRIVED, _LEFT = Cause.ARRIVED, Cause.LEFT
_OVER = frozenset({0, int(Reason.PAUSED_BY_APP), int(Reason.BACKING_OFF), int(Reason.AWAITING_RELEASE)})
"""Reasons that no longer hold once a job asks for GPUs again."""


def await_round(state: State, job: int, *, stopped: bool = False, at: Seconds | None = None) -> None:
    """Make a job wait for the next round.

    Args:
        state: changed in place.
        job: the job's row.
        stopped: a round took the job's GPUs; the verdict of that round is kept.
        at: time since which the job waits; None: now.
    """
    state.turn(job, _WAITING, at)
    if state.standing.backing_off:
        state.standing.backing_off.pop(job, None)
    jobs = state.jobs.cells
    if stopped and jobs.reason[job] not in _OVER:
        state.touch(job=job)
        state.cause(_ARRIVED)
        return
    jobs.reason[job], jobs.told_at[job] = _AWAITING_ROUND, state.now
    jobs.stage[job], jobs.plugin[job], jobs.told_in[job] = -1, 0, state.round
    state.touch(job=job)
    state.cause(_ARRIVED)
