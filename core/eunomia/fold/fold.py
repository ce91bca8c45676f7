"""Folds a step's events into the state; no decision is made here.

GPUs that an ended, failed or paused job has to give back become LEAVING at once. The orders for executors are
returned, as are the events that contradict the state and change nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any

from eunomia.contract.events import (
    Adapted,
    AppArrived,
    AppCancelled,
    AppFinished,
    BidReceived,
    Event,
    EventError,
    ForecastReported,
    GpusReturned,
    JobAdded,
    JobFailed,
    JobFinished,
    JobPaused,
    JobReported,
    JobResumed,
    JobsDivided,
    KindProfiled,
    MachineBack,
    MachineLost,
    ProfileChanged,
    RateMeasured,
    RegimesAnnounced,
    Released,
    Resized,
    Retuned,
    RoundEnded,
    SingleJobArrived,
    SingleJobEnded,
    Started,
    expanded,
    in_order,
)
from eunomia.errors import EunomiaError
from eunomia.fold import fold_gpus, fold_work, kind_profiles, regimes
from eunomia.fold.folding import Folding, await_round
from eunomia.fold.probing import end_overdue
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.units import NONE, Cause, Seconds


def fold(state: State, now: Seconds, events: Iterable[Event], *, grace: Seconds) -> Folding:
    """Advance the state to ``now`` and fold the events in, in the fixed order.

    ``grace``: seconds between the warning to a job and its kill. Raises EunomiaError where time goes backwards.
    """
    if not now >= state.now:
        raise EunomiaError("time must not go backwards", value=f"{now} after {state.now}")
    if now > state.now:
        state.counters.contention_area += (now - state.now) * state.owners.present
        state.now = now
    ordered = events if type(events) is list else list(events)
    ordered = in_order(ordered) if len(ordered) > 1 else ordered
    folding = Folding(state, grace, ordered)
    for event in ordered:
        try:
            if FOLDS[type(event)](folding, event) is False:  # a compound event that is not simple
                _fold_parts(folding, event)
        except EventError as error:
            folding.refuse(event, error)
    if state.owners.probing:
        end_overdue(folding)
    if state.lease_ends.ends and state.lease_ends.take_ended(state.now):
        state.cause(Cause.LEASE_ENDED)
    if state.amounts.tight:
        state.amounts.give_room(state.leases)
    if state.waiting_jobs.backing_off:
        _wake_retries(state)
    return folding


def _fold_parts(folding: Folding, event: Event) -> None:
    """Fold the events that a compound event stands for, one by one."""
    for part in expanded([event]):
        try:
            FOLDS[type(part)](folding, part)
        except EventError as error:
            folding.refuse(part, error)


def _wake_retries(state: State) -> None:
    """Make failed jobs wait again once their back-off has ended."""
    backing = state.waiting_jobs.backing_off
    jobs = state.jobs.live
    for job in [job for job in sorted(backing) if backing[job] <= state.now]:
        if jobs.state[job] == JobState.PAUSED and jobs.lease[job] == NONE:
            await_round(state, job)


FOLDS: dict[type, Callable[[Folding, Any], bool | None]] = {
    ProfileChanged: fold_work.profile_changed,
    KindProfiled: kind_profiles.kind_profiled,
    MachineLost: fold_gpus.lost,
    MachineBack: fold_gpus.back,
    Released: fold_gpus.released,
    GpusReturned: fold_gpus.returned,
    JobFinished: fold_work.job_finished,
    JobFailed: fold_work.job_failed,
    AppFinished: fold_work.app_finished,
    AppCancelled: fold_work.app_cancelled,
    Retuned: fold_gpus.retuned,
    Started: fold_gpus.started,
    Resized: fold_gpus.started,
    JobReported: fold_work.job_reported,
    RateMeasured: regimes.rate_measured,
    RegimesAnnounced: regimes.regimes_announced,
    ForecastReported: fold_work.forecast,
    Adapted: regimes.adapted,
    RoundEnded: fold_work.round_ended,
    JobsDivided: fold_gpus.divided,
    JobPaused: fold_work.paused,
    JobResumed: fold_work.resumed,
    AppArrived: fold_work.app_arrived,
    JobAdded: fold_work.job_added,
    BidReceived: fold_work.bid,
    SingleJobArrived: fold_work.single_job_arrived,
    SingleJobEnded: fold_gpus.single_job_ended,
}
