"""The plugin ``shockwave``: serve the next round of a plan, and plan again when the plan is stale."""

import dataclasses
import math
from typing import ClassVar, NamedTuple

import numpy as np

from eunomia import (
    NEVER,
    Allocation,
    Cause,
    Claims,
    Contract,
    Explanation,
    Feature,
    Grants,
    Memo,
    Menus,
    Offer,
    OverTime,
    PluginError,
    Promise,
    Reason,
    Seconds,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    Verdicts,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.pools import usable
from eunomia.units import Ints, JobId, Reals, Rows
from eunomia_plugins.shockwave.options import ShockwaveOptions
from eunomia_plugins.shockwave.packing import fitting
from eunomia_plugins.shockwave.plan import RoundPlan
from eunomia_plugins.shockwave.planning import planned, present
from eunomia_plugins.shockwave.record import PlanRecord

SOON = 1e-6
"""A call at most this many seconds before the end of a round belongs to the next round."""


class Shockwave:
    """The allocation of Shockwave (NSDI'23, §6): rounds planned for welfare over time, fairness and makespan.

    The plan is kept until a job arrives or leaves, the cluster changes, the window ends, or a job adapts. Within a
    round no running job is preempted: a plan made there begins with the next round, and GPUs that are free until then
    go to the jobs that the plan starts first.
    """

    name = "shockwave"
    api = 1
    options_type = ShockwaveOptions
    contracts: ClassVar[Contracts] = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.OVER_TIME, Feature.RATES, Feature.ONE_GPU_TYPE}),
            gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
            promises=frozenset({Promise.WORK_CONSERVING}),
        )
    }
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.ALLOCATION: RoundPlan}

    def __init__(self, options: ShockwaveOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request a round at each boundary, and at events for planning; only rounds at boundaries preempt jobs."""
        on = {Cause.ARRIVED, Cause.FREED, Cause.LEASE_ENDED, Cause.CLUSTER_CHANGED}
        if self.options.mode == "reactive":
            on.add(Cause.ADAPTED)
        return Triggers(on=frozenset(on), all_on=frozenset({Cause.BOUNDARY, Cause.WAKE, Cause.LEASE_ENDED}))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Serve the next round of the plan, then further jobs that fit.

        Jobs with an earlier planned round come first, then jobs without one.
        """
        if valuations.claims.unit is not Unit.JOB:
            raise PluginError(f"{self.name} must get utilities of jobs", value=valuations.claims.unit.value)
        form = valuations.form(OverTime)
        last = snapshot.memos.of(self.name, Stage.ALLOCATION)
        plan = last if isinstance(last, RoundPlan) else None
        now, length = float(snapshot.now), float(form.round_seconds)
        begins = plan is None or Cause.BOUNDARY in snapshot.causes or now >= plan.due - SOON
        record: PlanRecord | None = None
        if plan is None or self._is_stale(plan, snapshot, offer, form):
            first = now if plan is None or begins else plan.due
            plan, record = planned(snapshot, menus, offer, valuations, self.options, first)
        if begins:
            plan = dataclasses.replace(plan, due=now)
        turns = _turns(snapshot, menus, offer, plan)
        if begins:
            plan = dataclasses.replace(plan, row=plan.row + 1, due=self._ends(now, length))
        answer = self._answer(turns, plan, now)
        return dataclasses.replace(answer, record=record, memo=None if plan is last else plan)

    def _is_stale(self, plan: RoundPlan, snapshot: Snapshot, offer: Offer, form: OverTime) -> bool:
        """Return whether the plan is stale, so that a new one is needed."""
        window, jobs = plan.window, present(snapshot)
        if plan.row >= window.rounds or window.capacity != tuple(offer.capacity.tolist()):
            return True
        if (window.rounds, window.seconds) != (form.utility.shape[1] - 1, float(form.round_seconds)):
            return True  # the profile changed
        return window.present.keys() != jobs.keys() or (self.options.mode == "reactive" and window.present != jobs)

    def _ends(self, now: float, length: float) -> float:
        """Return the end of the round that begins now, in seconds; an estimate if the executor decides it."""
        if self.options.ends == "executor":
            return now + length
        return (math.floor((now + SOON) / length) + 1.0) * length

    def _answer(self, turns: "_Turns", plan: RoundPlan, now: float) -> Allocation:
        late = turns.gpus == 0
        timed = self.options.ends == "clock"
        lease = Seconds(max(plan.due - now, SOON)) if timed else None
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=turns.jobs),
            amount=Grants(gpus=turns.gpus),
            order=turns.served.astype(np.int32),
            verdicts=Verdicts(rows=turns.jobs[late], reasons=turns.reasons[late]),
            starts_at=np.where(late, turns.starts_at, np.nan),
            wake_at=Seconds(plan.due) if timed and plan.window.present else NEVER,
            lease=lease,
            protected=Seconds(0.0) if lease is None else lease,
        )

    @hookimpl
    def eunomia_explain(self, snapshot: Snapshot, job: JobId) -> Explanation | None:
        """Explain how many planned rounds the job has."""
        plan = snapshot.memos.of(self.name, Stage.ALLOCATION)
        if not isinstance(plan, RoundPlan):
            return None
        rounds, left = plan.rounds_left(str(job)), max(plan.window.rounds - plan.row, 0)
        text = f"It has {rounds} of the next {left} rounds of {plan.window.seconds:g} s in the plan."
        return Explanation(text=text, numbers={"rounds_planned": float(rounds), "rounds_left": float(left)})


class _Turns(NamedTuple):
    """The candidates of a round with their GPUs and reasons, one entry per job."""

    jobs: Rows
    gpus: Ints
    """Number of GPUs of the job; 0: it waits."""
    served: Ints
    """Indices of jobs in order of service."""
    reasons: Rows
    """Why the job waits, if it does."""
    starts_at: Reals
    """Start of the job's next planned round, in seconds since the start; NaN if it has none."""


def _turns(snapshot: Snapshot, menus: Menus, offer: Offer, plan: RoundPlan) -> _Turns:
    """Serve candidates by next planned round, then running jobs first, then by arrival, while GPUs are left."""
    jobs = offer.candidates
    starts = np.array([plan.starts_at(name) for name in snapshot.jobs.id[jobs].tolist()], dtype=float)
    sizes = menus.span(jobs)[1]
    held = np.isin(jobs, snapshot.holdings.job)
    ranked = np.lexsort((snapshot.jobs.arrived[jobs], ~held, np.where(np.isnan(starts), np.inf, starts)))
    ranked = ranked[sizes[ranked] > 0]
    free = usable(snapshot, offer, Claims(unit=Unit.JOB, rows=jobs)).size
    served = ranked[fitting(sizes[ranked], free)]
    gpus = np.zeros(jobs.size, np.int64)
    gpus[served] = sizes[served]
    reasons = np.where(np.isnan(starts), int(Reason.OUTRANKED), int(Reason.PLANNED_LATER)).astype(np.int32)
    kind = snapshot.jobs.gpu_type[jobs]
    limit = np.append(offer.capacity, offer.capacity.sum())[kind]
    reasons[(sizes <= 0) | (sizes > limit)] = int(Reason.NO_SIZE_FITS)
    reasons[limit == 0] = int(Reason.NO_GPU_OF_TYPE)
    return _Turns(jobs, gpus, served, reasons, starts)
