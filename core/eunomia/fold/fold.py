"""Fold a step's events into the state, without making decisions.

GPUs that an ended, failed or paused job must release become LEAVING at once. The result contains the orders for
executors, and the refused events, which contradict the state and are not applied.
"""

from collections.abc import Callable, Iterable
from typing import Any

from eunomia.contract import events as kinds
from eunomia.contract.event_order import SPAN, SUBJECT, expanded, in_order
from eunomia.contract.events import Event, EventError
from eunomia.errors import EunomiaError
from eunomia.fold import fold_gpus, fold_machines, fold_work, holding, kind_profiles, regimes
from eunomia.fold.folding import Folding, await_round
from eunomia.fold.probing import end_overdue
from eunomia.model.workload import JobState
from eunomia.store.state import State
from eunomia.store.writers import cause
from eunomia.units import NONE, Cause, Seconds


def fold(state: State, now: Seconds, events: Iterable[Event], *, grace: Seconds) -> Folding:
    """Advance the state to ``now`` and apply the events in the fixed order.

    ``grace`` is the time in seconds from a job's warning to its kill. Raises EunomiaError if time goes backwards.
    """
    if not now >= state.now:
        raise EunomiaError("time must not go backwards", value=f"{now} after {state.now}")
    state.counters.contention_area += (now - state.now) * state.owners.present
    state.now = now
    ordered = events if type(events) is list else list(events)
    last, one = -1, None
    for event in ordered:
        kind, (first, then) = type(event), SPAN[type(event)]
        if first <= last and (then > first or type(one) is not kind or SUBJECT[kind](one) > SUBJECT[kind](event)):
            ordered = in_order(ordered)
            break
        last, one = then, event
    folding = Folding(state, grace, ordered)
    for event in ordered:
        try:
            if FOLDS[type(event)](folding, event) is False:  # the parts must be applied one by one
                _fold_parts(folding, event)
        except EventError as error:
            folding.refuse(event, error)
    if state.lease_ends.ends or state.capacity.draining or state.amounts.tight or state.owners.probing:
        _end_what_is_due(folding)
    if state.waiting_jobs.backing_off:
        _wake_retries(state)
    if state.reports.held:
        holding.keep_held(folding)
    return folding


def _end_what_is_due(folding: Folding) -> None:
    """End overdue measurements and drains, mark ended leases as overdue, and retry leases that lack CPUs or memory."""
    state = folding.state
    if state.owners.probing:
        end_overdue(folding)
    if state.lease_ends.ends and state.lease_ends.take_ended(state.now):
        cause(state, Cause.LEASE_ENDED)
    if state.capacity.draining:
        fold_machines.end_drained(folding)
    if state.amounts.tight:
        state.amounts.give_room(state.leases)


def _fold_parts(folding: Folding, event: Event) -> None:
    """Apply the individual events of a compound event."""
    for part in expanded([event]):
        try:
            FOLDS[type(part)](folding, part)
        except EventError as error:
            folding.refuse(part, error)


def _wake_retries(state: State) -> None:
    """Let paused jobs whose back-off or GPU-hours ban has ended wait for the next round."""
    backing, jobs = state.waiting_jobs.backing_off, state.jobs.live
    for job in [job for job in sorted(backing) if backing[job] <= state.now]:
        if jobs.state[job] == JobState.PAUSED and jobs.lease[job] == NONE:
            await_round(state, job)


FOLDS: dict[type, Callable[[Folding, Any], bool | None]] = {
    kinds.ProfileChanged: fold_work.profile_changed,
    kinds.KindProfiled: kind_profiles.kind_profiled,
    kinds.UserHeld: holding.user_held,
    kinds.MachineLeft: fold_machines.left,
    kinds.MachineJoined: fold_machines.joined,
    kinds.MachineLost: fold_machines.lost,
    kinds.MachineBack: fold_machines.back,
    kinds.MachineDraining: fold_machines.drains,
    kinds.MachineKept: fold_machines.kept,
    kinds.Released: fold_gpus.released,
    kinds.GpusReturned: fold_gpus.returned,
    kinds.JobFinished: fold_work.job_finished,
    kinds.JobFailed: fold_work.job_failed,
    kinds.AppFinished: fold_work.app_finished,
    kinds.AppCancelled: fold_work.app_cancelled,
    kinds.Retuned: fold_gpus.retuned,
    kinds.Started: fold_gpus.started,
    kinds.Resized: fold_gpus.started,
    kinds.JobReported: fold_work.job_reported,
    kinds.RateMeasured: regimes.rate_measured,
    kinds.RegimesAnnounced: regimes.regimes_announced,
    kinds.ForecastReported: fold_work.forecast,
    kinds.Adapted: regimes.adapted,
    kinds.RoundEnded: fold_work.round_ended,
    kinds.JobsDivided: fold_gpus.divided,
    kinds.JobPaused: fold_work.paused,
    kinds.JobResumed: fold_work.resumed,
    kinds.AppArrived: fold_work.app_arrived,
    kinds.JobAdded: fold_work.job_added,
    kinds.BidReceived: fold_work.bid,
    kinds.SingleJobArrived: fold_work.single_job_arrived,
    kinds.SingleJobEnded: fold_gpus.single_job_ended,
}
