"""Folds a step's events into the state; no decision is made here.

GPUs that an ended, failed or paused job has to give back become LEAVING at once. The orders for executors are
returned, as are the events that contradict the state and change nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any

from eunomia.contract.decisions import Fault
from eunomia.contract.events import (
    Adapted,
    AppArrived,
    AppCancelled,
    AppFinished,
    BidReceived,
    Event,
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
from eunomia.model.workload import JobState
from eunomia.state import fold_gpus, fold_work, kind_profiles, regimes
from eunomia.state.folding import EventError, Folded, Folding, await_round
from eunomia.state.probing import end_overdue
from eunomia.state.room import give_room
from eunomia.state.state import State
from eunomia.units import NONE, Cause, Seconds


def fold(state: State, now: Seconds, events: Iterable[Event], *, grace: Seconds) -> Folded:
    """Advance the state to ``now`` and fold the events in, in the fixed order.

    Args:
        state: changed in place.
        now: the step's time; not before the last step's.
        events: of this instant.
        grace: seconds between the warning to a job and its kill.
    """
    standing = state.standing  # is built from the tables before they change, and updated with every change afterwards
    state.advance(now)
    folded = Folded([], [])
    ordered = in_order(events if type(events) is list else list(events))
    folding = Folding(state, folded, grace, ordered)
    _fold_each(folding, ordered)
    if state.probing:
        end_overdue(folding)
    if state.lease_ends.ends and state.lease_ends.take_ended(state.now):
        state.cause(Cause.LEASE_ENDED)
    if state.amounts.tight:
        give_room(state)
    if standing.backing_off:
        _wake_retries(state)
    return folded


def _fold_each(folding: Folding, events: Iterable[Event]) -> None:
    """Fold events in this order; those that contradict the state are refused."""
    for event in events:
        try:
            FOLDS[type(event)](folding, event)
        except EventError as error:
            what = f"{type(event).__name__}: {error}"
            folding.folded.refused.append(Fault(plugin="", stage=None, what=what))


def _single_job_arrived(folding: Folding, event: SingleJobArrived) -> None:
    if not fold_work.single_job_arrived(folding, event):
        _fold_each(folding, expanded([event]))


def _single_job_ended(folding: Folding, event: SingleJobEnded) -> None:
    if not fold_gpus.single_job_ended(folding, event):
        _fold_each(folding, expanded([event]))


def _wake_retries(state: State) -> None:
    """Make failed jobs wait again once their back-off has ended."""
    backing = state.standing.backing_off
    jobs = state.jobs.live
    for job in [job for job in sorted(backing) if backing[job] <= state.now]:
        if jobs.state[job] == JobState.PAUSED and jobs.lease[job] == NONE:
            await_round(state, job)


FOLDS: dict[type, Callable[[Folding, Any], None]] = {
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
    Resized: fold_gpus.resized,
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
    SingleJobArrived: _single_job_arrived,
    SingleJobEnded: _single_job_ended,
}
