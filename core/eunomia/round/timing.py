"""Decide when a round is due, and when the next step is due if no event occurs."""

import math

from eunomia.contract.contracts import Feature, Triggers
from eunomia.contract.stages import DEFAULT_TRIGGERS, Stages
from eunomia.model.cluster import Cluster
from eunomia.round.answers import StageFaultError, fault_of, mistyped
from eunomia.store.state import State
from eunomia.store.writers import cause
from eunomia.units import NEVER, Cause, Seconds, Stage

_BOUNDARY, _LEASE_ENDED, _WAKE = Cause.BOUNDARY, Cause.LEASE_ENDED, Cause.WAKE


class Timing:
    """The triggers of a profile; the allocation declares them once.

    Args:
        stages: the stages in use.
        cluster: the cluster, on which the triggers may depend.
    """

    __slots__ = ("cluster", "known", "lease", "probes", "retunes", "stages")

    def __init__(self, stages: Stages, cluster: Cluster) -> None:
        self.stages, self.cluster, self.lease = stages, cluster, lease_of(stages)
        self.known: Triggers | None = None
        """The triggers; None if the allocation has not declared them yet."""
        self.probes = Feature.PROBES in stages.contract(Stage.ELASTICITY).gives
        """Whether the elasticity may request measurements."""
        self.retunes = Feature.RETUNES in stages.contract(Stage.PLACEMENT).gives
        """Whether the placement may change the CPUs and memory of running jobs."""

    def declared(self) -> Triggers:
        """Return the triggers declared by the allocation, with the profile's overrides.

        Raises:
            StageFaultError: the allocation failed to declare its triggers; the next call tries again.
        """
        if self.known is None:
            declare, declared = self.stages.triggers, DEFAULT_TRIGGERS
            if declare is not None:
                name = self.stages.names.get(Stage.ALLOCATION, Stage.ALLOCATION.value)
                try:
                    declared = declare(self.cluster)
                except (Exception, SystemExit) as error:
                    raise fault_of(name, Stage.ALLOCATION, error) from error
                if not isinstance(declared, Triggers):
                    raise mistyped(name, Stage.ALLOCATION, Triggers, declared)
            self.known = self.stages.rounds.triggers(declared)
        return self.known

    def due(self, state: State) -> frozenset[Cause]:
        """Return the causes of the round that is due now; empty if none is due."""
        triggers, counters, now = self.known or self.triggers(), state.counters, state.now
        if state.lease_ends.guards and state.lease_ends.next_guard() <= now and _unguarded(state, triggers):
            cause(state, _LEASE_ENDED)
        if triggers.every is not None and now >= counters.last_boundary + triggers.every:
            counters.last_boundary = Seconds(math.floor(now / triggers.every) * triggers.every)
            cause(state, _BOUNDARY)
        elif _BOUNDARY not in counters.causes:  # else an executor's round has ended
            if now >= counters.stage_wake_at:
                cause(state, _WAKE)
            elif not (counters.causes & triggers.on and now >= counters.cause_since + triggers.settle):
                return frozenset()
        return counters.causes

    def next(self, state: State) -> Seconds:
        """Return the time, in seconds, at which the next step is due if no event occurs."""
        triggers, now, ends, counters = self.known or self.triggers(), state.now, state.lease_ends, state.counters
        wake_at = counters.stage_wake_at if now < counters.stage_wake_at else NEVER
        if ends.ends:
            wake_at = _sooner(ends.next_end(), now, wake_at)
        if state.open is not None:
            wake_at = _sooner(state.open.offer.closes_at or NEVER, now, wake_at)
        elif counters.causes or triggers.every is not None or ends.guards:
            wake_at = _next_round(state, triggers, wake_at)
        if state.capacity.draining or state.owners.probing or state.waiting_jobs.backing_off:
            ordered = [until - self.stages.rounds.suspend_grace for until in state.capacity.draining.values()]
            for time in (*ordered, *state.owners.probing.values(), *state.waiting_jobs.backing_off.values()):
                wake_at = _sooner(Seconds(time), now, wake_at)
        return wake_at

    def triggers(self) -> Triggers:
        """Return the triggers, or the default ones while the allocation fails to declare its own."""
        try:
            return self.declared()
        except StageFaultError:
            return self.stages.rounds.triggers(DEFAULT_TRIGGERS)  # the next round reports the fault


def lease_of(stages: Stages) -> Seconds:
    """Return the length of a lease in seconds under the profile; NEVER if leases do not end."""
    lease = stages.rounds.lease
    return NEVER if lease is None else lease


def _sooner(time: Seconds, now: Seconds, than: Seconds) -> Seconds:
    """Return the earlier of two times, where the first counts only if it is later than now."""
    return time if now < time < than else than


def _next_round(state: State, triggers: Triggers, than: Seconds) -> Seconds:
    """Return the time of the next round by causes, boundaries and ends of protection, at most ``than``."""
    now, counters, wake_at = state.now, state.counters, than
    if counters.causes and (_BOUNDARY in counters.causes or counters.causes & triggers.on):
        # A cause that occurred while an offer was open is due at once: at the next representable time.
        soon = Seconds(math.nextafter(now, math.inf))
        wake_at = _sooner(max(Seconds(counters.cause_since + triggers.settle), soon), now, wake_at)
    if triggers.every is not None and state.names.jobs:  # no periodic steps in an empty cluster
        wake_at = _sooner(Seconds(counters.last_boundary + triggers.every), now, wake_at)
    if triggers.when_unprotected and state.waiting_jobs.rows and state.lease_ends.guards:
        wake_at = _sooner(state.lease_ends.next_guard(), now, wake_at)
    return wake_at


def _unguarded(state: State, triggers: Triggers) -> bool:
    """Drop protections that have ended; return whether that causes a round, as a waiting job may get their GPUs."""
    freed = state.lease_ends.take_unguarded(state.now)
    if not triggers.when_unprotected:
        return False
    return bool(state.waiting_jobs.rows) and (bool(triggers.all_on) or not freed.isdisjoint(state.lease_ends.overdue))
