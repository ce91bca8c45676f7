"""When a round is due, and when the next step is due without news."""

import math

from eunomia.contract.contracts import Triggers
from eunomia.contract.stages import DEFAULT_TRIGGERS, Stages
from eunomia.round.answers import StageFaultError, ask
from eunomia.state.state import State
from eunomia.units import NEVER, Cause, Seconds, Stage

_BOUNDARY, _LEASE_ENDED, _WAKE = Cause.BOUNDARY, Cause.LEASE_ENDED, Cause.WAKE


class Timing:
    """The triggers of some stages; what the allocation declares is asked for once.

    Args:
        stages: who serves.
    """

    __slots__ = ("known", "stages")

    def __init__(self, stages: Stages) -> None:
        self.stages = stages
        self.known: Triggers | None = None
        """The triggers; None: the allocation has not been asked yet."""

    def declared(self, state: State) -> Triggers:
        """What the allocation declares, with what the profile overrides.

        Raises:
            StageFaultError: the allocation cannot say; it is asked again.
        """
        if self.known is None:
            declare, declared = self.stages.triggers, DEFAULT_TRIGGERS
            if declare is not None:
                name = self.stages.names.get(Stage.ALLOCATION, Stage.ALLOCATION.value)
                declared = ask(name, Stage.ALLOCATION, Triggers, declare, state.cluster)
            self.known = self.stages.rounds.triggers(declared)
        return self.known

    def due(self, state: State) -> frozenset[Cause]:
        """Causes of the round that is due now; empty: none is."""
        triggers = self.known or self._known(state)
        if state.guards and state.next_guard() <= state.now and _unguarded(state, triggers):
            state.cause(_LEASE_ENDED)
        if triggers.every is not None and state.now >= state.last_boundary + triggers.every:
            state.last_boundary = Seconds(math.floor(state.now / triggers.every) * triggers.every)
            state.cause(_BOUNDARY)
            return frozenset(state.causes)
        if _BOUNDARY in state.causes:  # an executor's round is over
            return frozenset(state.causes)
        if state.now >= state.stage_wake_at:
            state.cause(_WAKE)
            return frozenset(state.causes)
        if state.causes & triggers.on and state.now >= state.cause_since + triggers.settle:
            return frozenset(state.causes)
        return frozenset()

    def next(self, state: State) -> Seconds:
        """When the next step is due without news."""
        triggers, now, standing = self.known or self._known(state), state.now, state.standing
        wake_at = state.stage_wake_at if now < state.stage_wake_at else NEVER
        if state.ends:
            wake_at = _sooner(state.next_end(), now, wake_at)
        if state.open is not None:
            wake_at = _sooner(state.open.offer.closes_at or NEVER, now, wake_at)
        else:
            if state.causes and (_BOUNDARY in state.causes or state.causes & triggers.on):
                # What came while an offer was out is due at once: at the next moment that there is.
                soon = Seconds(math.nextafter(now, math.inf))
                wake_at = _sooner(max(Seconds(state.cause_since + triggers.settle), soon), now, wake_at)
            if triggers.every is not None and state.job_rows:  # an empty cluster sleeps
                wake_at = _sooner(Seconds(state.last_boundary + triggers.every), now, wake_at)
            if standing.waiting and state.guards:
                wake_at = _sooner(state.next_guard(), now, wake_at)
        if standing.backing_off:
            for time in standing.backing_off.values():
                wake_at = _sooner(Seconds(time), now, wake_at)
        return wake_at

    def _known(self, state: State) -> Triggers:
        if self.known is not None:
            return self.known
        try:
            return self.declared(state)
        except StageFaultError:
            return self.stages.rounds.triggers(DEFAULT_TRIGGERS)  # the next round says so


def _sooner(time: Seconds, now: Seconds, than: Seconds) -> Seconds:
    """The sooner of two times, where the first is still to come."""
    return time if now < time < than else than


def _unguarded(state: State, triggers: Triggers) -> bool:
    """Forget the protected parts that are past; say whether somebody waits who may now get what was protected."""
    freed = state.take_unguarded()
    return bool(state.standing.waiting) and (bool(triggers.all_on) or not freed.isdisjoint(state.standing.overdue))
