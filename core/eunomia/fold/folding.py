"""Helpers for applying events of all types to the state."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eunomia.contract.decisions import Fault, Transition, TransitionKind
from eunomia.contract.events import JOB_ENDED, Event, EventError, JobFinished, SingleJobEnded
from eunomia.contract.verdicts import Reason
from eunomia.fold.revoking import revoke
from eunomia.model.leases import Lease, LeaseState
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.store.writers import cause, close_app, divide, drop_job, move, set_verdict
from eunomia.units import NONE, AppId, Cause, JobId, Seconds


@dataclasses.dataclass(slots=True, eq=False)
class Folding:
    """The context in which one step's events are applied to the state, and the results."""

    state: State
    grace: Seconds
    """Seconds from the warning to a job until its kill."""
    events: Sequence[Event]
    """The events of the step, in the fixed order."""
    orders: list[Transition] = dataclasses.field(default_factory=list)
    """Orders for executors that follow from the events."""
    refused: list[Fault] = dataclasses.field(default_factory=list)
    """The events that were refused."""
    _ending: set[JobId] | None = None

    def refuse(self, event: Event, error: EventError) -> None:
        """Record an event that contradicts the state and was not applied."""
        self.refused.append(Fault(plugin="", stage=None, what=f"{type(event).__name__}: {error}"))

    def ends(self, job: JobId) -> bool:
        """Return whether a job ends in this step, so that it must not wait again."""
        if self._ending is None:
            self._ending = {one.job for one in self.events if type(one) is JobFinished or type(one) is SingleJobEnded}
        return job in self._ending

    def app(self, app: AppId) -> int:
        """Return the row of an app that has not ended; raise EventError if there is none with this id."""
        row = self.state.names.apps.get(app, NONE)
        if row == NONE or self.state.apps.cells.ended[row]:
            raise EventError("an event must name an app that has not ended", value=f'"{app}"')
        return row

    def job(self, job: JobId) -> int:
        """Return the row of a job; raise EventError if there is none with this id."""
        row = self.state.names.jobs.get(job, NONE)
        if row == NONE:
            raise EventError(JOB_ENDED, value=f'"{job}"')
        return row

    def time(self, at: Seconds) -> Seconds:
        """Return the time of an event, at most that of the step, as an executor's clock may be ahead."""
        return min(self.state.now, at)  # NaN, where the event carries no time, is not less

    def leave(self, lease: Lease, gpus: list[int], kind: TransitionKind = TransitionKind.SUSPEND) -> Transition | None:
        """Revoke GPUs of a lease, add the order for executors and return it; None if the lease held none of them."""
        order = revoke(self.state, lease, gpus, kind=kind, deadline=Seconds(self.state.now + self.grace))
        if order is not None:
            self.orders.append(order)
        return order

    def leave_all(self, job: int) -> None:
        """Revoke all GPUs of the job's own lease."""
        lease = self.state.leases.get(self.state.jobs.cells.lease[job])
        if lease is not None and lease.state is not LeaseState.LEAVING:
            self.leave(lease, lease.gpus)

    def undivide(self, job: int) -> None:
        """Unassign the job from the GPUs that its app's tuner assigned to it."""
        if self.state.jobs.cells.lease[job] == NONE:
            self.take_off(job)
            self.state.jobs.set(job, gpus=0)

    def take_off(self, job: int) -> None:
        """Remove the job from all GPUs: those of its lease, and those assigned by its app's tuner."""
        if self.state.jobs.live.on[job].any():
            for gpu in np.flatnonzero(self.state.holdings.live.job == job).tolist():
                divide(self.state, gpu, NONE)

    def pause(self, job: int, reason: Reason, *, until: float | None = None) -> None:
        """Pause a job, which releases its GPUs, until a time in seconds; None: until its app resumes it."""
        state, backing_off = self.state, self.state.waiting_jobs.backing_off
        self.leave_all(job)
        self.undivide(job)
        move(state, job, JobState.PAUSED)
        ready_at = state.jobs.cells.ready_at[job] if until is None else until
        state.jobs.set(job, reason=reason, verdict_at=state.now, ready_at=ready_at)
        if until is None:
            backing_off.pop(job, None)
        else:
            backing_off[job] = until
        state.touch(job=job)

    def remove_job(self, job: int) -> None:
        """Drop a job; its GPUs must be released."""
        state = self.state
        held = state.jobs.cells.lease
        self.leave_all(job)
        self.take_off(job)
        lease = state.leases.get(held[job]) if held[job] != NONE else None
        if lease is not None:
            lease.job = NONE
            state.owners.shared_by.setdefault(lease.app, set()).add(lease.id)
        drop_job(state, job)

    def end_app(self, app: int, outcome: str) -> None:
        """End an app with all its jobs and leases."""
        state = self.state
        for job in sorted(state.owners.jobs_of.get(app, ())):
            self.remove_job(job)
        for lease in state.app_leases(app):
            if lease.state is not LeaseState.LEAVING:
                self.leave(lease, lease.gpus)
        state.touch(app=app)
        cause(state, _LEFT)
        close_app(state, app, outcome)


_AWAITING = int(Reason.AWAITING_ROUND), -1, ""
_WAITING = JobState.WAITING
_ARRIVED, _LEFT = Cause.ARRIVED, Cause.LEFT
_OVER = frozenset({0, *map(int, (Reason.PAUSED_BY_APP, Reason.SUSPENDED, Reason.BACKING_OFF, Reason.AWAITING_RELEASE))})
"""Reasons that no longer apply once a job requests GPUs again."""


def await_round(state: State, job: int, *, stopped: bool = False, at: Seconds | None = None) -> None:
    """Make a job wait for the next round.

    Args:
        state: the state, changed in place.
        job: the job's row.
        stopped: whether a round preempted the job and ended its lease; the verdict of that round is kept.
        at: time in seconds since which the job waits; None: now.
    """
    move(state, job, _WAITING, at)
    if state.waiting_jobs.backing_off:
        state.waiting_jobs.backing_off.pop(job, None)
    if not stopped or state.jobs.cells.reason[job] in _OVER:
        set_verdict(state, job, _AWAITING)
    state.changes.rows.append(job)
    cause(state, _ARRIVED)
