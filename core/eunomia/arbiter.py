"""One round of arbitration: a pure state machine. No clock, no threads, no I/O; drivers give it time and events."""

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from eunomia.adopt import adopt, close_offer
from eunomia.allocations import Allocation
from eunomia.answers import StageFaultError, ask
from eunomia.asking import Asking, Round
from eunomia.bids import Closing, closing_of
from eunomia.cluster import Cluster
from eunomia.contracts import Triggers
from eunomia.decisions import Decision, Fault, MemoChange, RecordTable, Renewal
from eunomia.errors import EunomiaError
from eunomia.events import Event
from eunomia.fold import fold
from eunomia.folding import Folded
from eunomia.invariants import PlanError, check_allocation, check_placement, check_state
from eunomia.leases import LeaseState
from eunomia.memos import Memo, read_memo
from eunomia.menus import Menus
from eunomia.offering import make_offer
from eunomia.offers import Offer
from eunomia.placements import Placement
from eunomia.plan import Plan, plan, planned
from eunomia.records import Record
from eunomia.saving import load_state, save_state
from eunomia.snapshot import Snapshot
from eunomia.stages import Stages
from eunomia.state import State
from eunomia.strictness import is_strict
from eunomia.timing import Timing
from eunomia.units import NEVER, Cause, Ints, LeaseId, OfferId, Scope, Seconds, Stage
from eunomia.valuations import Valuations
from eunomia.verdict_changes import verdicts_of

NO_GPUS = np.empty(0, np.int64)
_put = object.__setattr__
_FREE = Scope.FREE
_ELASTICITY, _VALUATION, _ALLOCATION, _PLACEMENT = Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION, Stage.PLACEMENT


class Arbiter:
    """Arbitrates a cluster among apps by the stages of a profile.

    Args:
        cluster: what there is.
        stages: of the profile that was chosen.
        fallback: of the profile that serves after too many faulty rounds.
        seed: all randomness follows from it.
    """

    def __init__(self, cluster: Cluster, stages: Stages, fallback: Stages, *, seed: int = 0) -> None:
        self.state = State(cluster, seed=seed)
        self.chosen = stages
        self.fallback = fallback
        self.asking: Callable[[str, Stage], None] | None = None
        """Told who is about to be asked, so that a driver knows who hangs."""
        self.strict = is_strict()
        """Whether faults of plugins are raised, and the whole state is checked after every step."""
        self._serving = stages
        self._timing = Timing(stages)
        self._asked: Asking | None = None
        self._calls = 0

    @property
    def calls(self) -> int:
        """Calls of stages so far."""
        return self._calls + (0 if self._asked is None else self._asked.calls)

    @property
    def serving(self) -> Stages:
        """The stages that serve: the chosen ones, or the fallback."""
        return self.fallback if self.state.fallen_back else self.chosen

    def use(self, stages: Stages) -> None:
        """Serve by other stages from the next step on; the driver sends ``ProfileChanged`` with it."""
        self.chosen = stages

    def step(self, now: Seconds, events: Iterable[Event] = ()) -> Decision:
        """Fold events in, and decide if a round is due.

        Args:
            now: seconds since the start; not before the last step's.
            events: of this instant, in any order.

        Returns:
            The decision, already adopted.

        Raises:
            EunomiaError: time goes backwards.
        """
        decision = self._step(now, events)
        if self.strict:
            check_state(self.state)
        return decision

    def _step(self, now: Seconds, events: Iterable[Event]) -> Decision:
        folded = self._fold(now, events)  # 1. what happened; leases that are over
        if self.state.open is not None:  # an offer is out with app masters
            closing = closing_of(self.state)
            if closing is None:
                return self._rest(folded)
            return self._close(folded, closing)
        timing = self.timing
        causes = timing.due(self.state)  # 2. is a round due?
        if not causes:
            return self._rest(folded)
        triggers = timing.known
        if triggers is not None and self._is_quiet(triggers, causes):
            return self._quiet(folded, causes)
        return self._decide(folded, causes, lambda asking: self._round(asking, causes))  # 3. to 9.

    def replay(self, now: Seconds, events: Iterable[Event], decision: Decision) -> None:
        """Do again what ``step`` did, from the journal, without asking a plugin."""
        self._fold(now, events)
        if decision.causes and decision.closed is None:
            self.timing.due(self.state)
        if decision.faulty:
            self._count_fault()
        elif decision.causes:
            self.state.faults_in_row = 0
        self._adopt(decision)

    def abandon(self, now: Seconds, fault: Fault) -> Decision:
        """Count a step that had to be abandoned with the process that made it, as a faulty round.

        Args:
            now: seconds since the start.
            fault: who was asked and did not return.
        """
        folded = self._fold(now, ())
        causes = self.timing.due(self.state)
        self.state.round += 1
        return self._faulty(folded, causes, fault, None)

    def snapshot(self) -> Snapshot:
        """The state of now, as stages see it."""
        return self.state.snapshot()

    def save(self) -> bytes:
        """The whole state, for a checkpoint."""
        return save_state(self.state)

    def load(self, data: bytes) -> None:
        """Go on from a checkpoint of an arbiter of the same cluster."""
        self.state = load_state(data, self.state.cluster, self._memo_types())

    def standings(self) -> Valuations:
        """What each claim is worth as it stands: the valuation of the empty offer, for screens.

        Raises:
            StageFaultError: the valuation failed.
        """
        stages = self._serving = self.serving
        snapshot, asking = self.state.snapshot(), self._asking()
        names = stages.names
        menus = asking.ask(Stage.ELASTICITY, names[Stage.ELASTICITY], Menus, stages.elasticity, snapshot)
        empty = _empty(make_offer(self.state, Scope.FREE, self._lease()))
        return asking.ask(Stage.VALUATION, names[Stage.VALUATION], Valuations, stages.valuation, snapshot, menus, empty)

    @property
    def timing(self) -> Timing:
        """When rounds are due, by the stages that serve."""
        stages, timing = self.fallback if self.state.fallen_back else self.chosen, self._timing
        if timing.stages is not stages:
            timing = self._timing = Timing(stages)
        return timing

    def _fold(self, now: Seconds, events: Iterable[Event]) -> Folded:
        state = self.state
        if not now >= state.now:
            raise EunomiaError("time must not go backwards", value=f"{now} after {state.now}")
        serving = self.fallback if state.fallen_back else self.chosen
        folded = fold(state, now, events, grace=serving.rounds.suspend_grace)
        self._serving = self.fallback if state.fallen_back else self.chosen
        return folded

    def _is_quiet(self, triggers: Triggers, causes: frozenset[Cause]) -> bool:
        """Say whether no stage need be asked: nobody wants more, or there is nothing to give.

        Where triggers are not known, the round asks the allocation for them, and may find that it fails.
        """
        state = self.state
        standing = state.standing
        free = causes.isdisjoint(triggers.all_on)
        if (free or not triggers.when_served) and not standing.waiting and not standing.short:
            return True
        return free and not triggers.when_full and not self._serving.refiners and _full(state)

    def _quiet(self, folded: Folded, causes: frozenset[Cause]) -> Decision:
        """A round without anything to decide: ended leases go on."""
        state = self.state
        state.round += 1
        state.faults_in_row = 0
        decision = Decision(
            now=state.now,
            round=state.round,
            version=state.version,
            causes=causes,
            orders=tuple(folded.orders),
            renewals=tuple(self._renewals()) if state.standing.overdue else (),
            faults=tuple(folded.refused),
            serving=self._serving.profile,
        )
        return self._adopt(decision)

    # --- the round -------------------------------------------------------------------------------------------------

    def _round(self, asking: Asking, causes: frozenset[Cause]) -> Round:
        """Ask the stages in order; nothing is changed but the round's number."""
        state, stages = self.state, self._serving
        triggers = self.timing.declared(state)
        scope = _FREE if causes.isdisjoint(triggers.all_on) else Scope.ALL
        snapshot = state.snapshot(causes)
        result = Round(plan=Plan(transitions=[], renewals=[]))
        menus = self._menus(asking, result, snapshot)
        offer = self._narrow(asking, snapshot, menus, make_offer(state, scope, self._lease()))
        result.considered = offer
        if state.standing.overdue:
            result.plan.renewals += self._renewals(beyond=offer.gpus)
        deadline = stages.rounds.bid_deadline
        if deadline is not None and self._asks(offer):
            result.offer = dataclasses.replace(offer, whole=False, closes_at=Seconds(state.now + deadline))
            return result
        valuations = self._valuations(asking, result, snapshot, menus, offer)
        return self._allocate(asking, result, snapshot, menus, offer, valuations)

    def _menus(self, asking: Asking, result: Round, snapshot: Snapshot) -> Menus:
        stage, stages = _ELASTICITY, self._serving
        return asking.answer(result, stage, asking.names[stage], Menus, stages.elasticity, snapshot)

    def _valuations(self, asking: Asking, result: Round, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        stage, call = _VALUATION, self._serving.valuation
        return asking.answer(result, stage, asking.names[stage], Valuations, call, snapshot, menus, offer)

    def _narrow(self, asking: Asking, snapshot: Snapshot, menus: Menus, everything: Offer) -> Offer:
        """Let the allocation show the offer to some only."""
        stages = self._serving
        if stages.offer is None:
            return everything
        values, gives = asking.name(Stage.VALUATION), asking.name(Stage.ALLOCATION)
        empty = _empty(everything)
        standings = asking.ask(Stage.VALUATION, values, Valuations, stages.valuation, snapshot, menus, empty)
        offer = asking.ask(Stage.ALLOCATION, gives, Offer, stages.offer, snapshot, menus, everything, standings)
        asking.held(Stage.ALLOCATION, _check_narrowed, everything, offer)
        return dataclasses.replace(offer, whole=False)

    def _asks(self, offer: Offer) -> bool:
        """Say whether there are app masters that can bid."""
        if offer.gpus.size == 0:
            return False
        apps = self.state.present() if offer.apps is None else offer.apps
        return bool(np.any(self.state.apps.live.divides[apps] == 1))

    def _allocate(
        self, asking: Asking, result: Round, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations
    ) -> Round:
        stages, stage = self._serving, _ALLOCATION
        allocation = asking.answer(
            result, stage, asking.names[stage], Allocation, stages.allocation, snapshot, menus, offer, valuations
        )
        for refine, name in zip(stages.refiners, stages.refiner_names, strict=True):
            allocation = asking.answer(
                result, Stage.REFINE, name, Allocation, refine, snapshot, menus, offer, allocation
            )
        giver = Stage.REFINE if stages.refiners else stage
        asking.held(giver, self._check_allocation, asking, result, menus, offer, allocation, valuations)
        stage = _PLACEMENT
        placement = asking.answer(
            result, stage, asking.names[stage], Placement, stages.placement, snapshot, menus, offer, allocation
        )
        made = asking.held(stage, self._plan, menus, offer, allocation, placement)
        result.plan.transitions += made.transitions
        result.plan.renewals += made.renewals
        if allocation.starts_at is not None:
            result.starts_at = asking.held(giver, planned, allocation)
        return result

    def _check_allocation(
        self,
        asking: Asking,
        result: Round,
        menus: Menus,
        offer: Offer,
        allocation: Allocation,
        valuations: Valuations,
    ) -> None:
        """Refuse what no placement could serve; note when a stage wants the next round."""
        result.wake_at = self._wake_at(asking, allocation, valuations)
        check_allocation(self.state, menus, offer, allocation)

    def _plan(self, menus: Menus, offer: Offer, allocation: Allocation, placement: Placement) -> Plan:
        """Refuse what breaks an invariant; return what is to change."""
        check_placement(self.state, menus, offer, allocation, placement)
        return plan(self.state, offer, allocation, placement, self._serving.rounds)

    def _wake_at(self, asking: Asking, allocation: Allocation, valuations: Valuations) -> Seconds:
        """When a stage wants the next round: later than now, or this one would never end."""
        now, ranks, gives = self.state.now, valuations.wake_at, allocation.wake_at
        for stage, time in ((_VALUATION, ranks), (_ALLOCATION, gives)):
            if not time > now:
                raise StageFaultError(asking.name(stage), stage, f"wake_at must be later than now, but got {time}")
        return min(gives, ranks)

    def _asking(self) -> Asking:
        known, stages = self._asked, self._serving
        if (
            known is None
            or known.state is not self.state
            or known.stages is not stages
            or known.told is not self.asking
        ):
            self._calls = self.calls
            known = self._asked = Asking(self.state, stages, self.asking)
        return known

    def _lease(self) -> Seconds:
        lease = self._serving.rounds.lease
        return NEVER if lease is None else lease

    def _renewals(self, beyond: Ints = NO_GPUS) -> list[Renewal]:
        """Ended leases that go on for one term; with ``beyond`` only those with no GPU on that offer."""
        state, lease = self.state, self._lease()
        ended = [state.leases[number] for number in sorted(state.standing.overdue)]
        return [
            Renewal(lease=LeaseId(held.id), ends_at=Seconds(state.now + lease), protected_until=held.protected_until)
            for held in ended
            if held.state is not LeaseState.LEAVING and not np.isin(held.gpus, beyond).any()
        ]

    # --- its outcome -----------------------------------------------------------------------------------------------

    def _close(self, folded: Folded, closing: Closing) -> Decision:
        """Every bid is in, or the offer's time is over: go on where the round had stopped."""
        if self.state.open is None:
            return self._rest(folded)
        number = self.state.open.offer.id
        close_offer(self.state)
        causes = frozenset({Cause.WAKE})  # what happened meanwhile stays a cause of the next round

        def go_on(asking: Asking) -> Round:
            snapshot = self.state.snapshot(causes)
            result = Round(plan=Plan(transitions=[], renewals=[]))
            result.considered = closing.offer
            menus = self._menus(asking, result, snapshot)
            silent = dataclasses.replace(closing.offer, apps=closing.silent)
            valuations = self._valuations(asking, result, snapshot, menus, silent)
            return self._allocate(asking, result, snapshot, menus, closing.offer, closing.joined(valuations))

        return self._decide(folded, causes, go_on, closed=number)

    def _decide(
        self,
        folded: Folded,
        causes: frozenset[Cause],
        work: Callable[[Asking], Round],
        *,
        closed: OfferId | None = None,
    ) -> Decision:
        state, asking = self.state, self._asking()
        if closed is None:
            state.round += 1  # randomness follows from the round's number: an offer keeps its own
        try:
            result = work(asking)
            opened = result.offer is not None
            waiting = verdicts_of(state, result.considered, result.answers, result.plan.transitions, opened=opened)
            memos = self._memo_changes(result) if result.memos else ()
            records = tuple([_record(name, record) for name, record in result.records]) if result.records else ()
        except (StageFaultError, PlanError) as error:
            if self.strict:
                raise
            return self._faulty(folded, causes, asking.fault(error), closed)
        state.faults_in_row = 0
        decision = Decision(
            now=state.now,
            round=state.round,
            version=state.version,
            causes=causes,
            offers=() if result.offer is None else (result.offer,),
            closed=closed,
            orders=tuple(folded.orders),
            transitions=tuple(result.plan.transitions),
            renewals=tuple(result.plan.renewals),
            waiting=waiting,
            starts_at=tuple([(state.job_id(row), time) for row, time in result.starts_at]) if result.starts_at else (),
            records=records,
            faults=tuple(folded.refused),
            memos=memos,
            serving=asking.stages.profile,
            stage_wake_at=result.wake_at,
        )
        return self._adopt(decision, result.memos)

    def _memo_changes(self, result: Round) -> tuple[MemoChange, ...]:
        changes = []
        for (plugin, stage), memo in result.memos.items():
            data = ask(plugin, stage, bytes, memo.to_bytes)
            old = self.state.memos.get((plugin, stage))
            if old is None or old.to_bytes() != data:
                changes.append(MemoChange(plugin=plugin, stage=stage, version=memo.version, data=data))
        return tuple(changes)

    def _faulty(self, folded: Folded, causes: frozenset[Cause], fault: Fault, closed: OfferId | None) -> Decision:
        """A faulty round changes nothing: ended leases go on for one term, free GPUs wait, memos are dropped."""
        decision = Decision(
            now=self.state.now,
            round=self.state.round,
            version=self.state.version,
            causes=causes,
            closed=closed,
            orders=tuple(folded.orders),
            renewals=tuple(self._renewals()),
            faults=(*folded.refused, fault),
            memos=tuple(
                MemoChange(plugin=plugin, stage=stage, version=0, data=None) for plugin, stage in self.state.memos
            ),
            waiting=verdicts_of(self.state, None, [], (), fault=fault),
            serving=self.serving.profile,
            # A free GPU must not wait for the next event: the round is tried again.
            stage_wake_at=Seconds(self.state.now + self._retry_after()),
        )
        self._count_fault()
        return self._adopt(decision)

    def _retry_after(self) -> float:
        return min(self._lease(), self.serving.rounds.suspend_grace, 30.0)

    def _count_fault(self) -> None:
        self.state.faults_in_row += 1
        if self.state.faults_in_row >= self.serving.rounds.faults_allowed:
            self.state.fallen_back = True

    def _rest(self, folded: Folded) -> Decision:
        """No round: what happened is all there is to say."""
        decision = Decision(
            now=self.state.now,
            round=self.state.round,
            version=self.state.version,
            orders=tuple(folded.orders),
            faults=tuple(folded.refused),
            serving=self.serving.profile,
        )
        return self._adopt(decision)

    def _adopt(self, decision: Decision, memos: dict[tuple[str, Stage], Memo] | None = None) -> Decision:
        state = self.state
        adopt(state, decision)
        if decision.memos:
            self._adopt_memos(decision.memos, memos)
        # Nobody else has seen it yet: the last two fields follow from the state that it makes.
        _put(decision, "version", state.version)
        _put(decision, "wake_at", self.timing.next(state))
        return decision

    def _adopt_memos(self, changes: Iterable[MemoChange], memos: dict[tuple[str, Stage], Memo] | None) -> None:
        types = self._memo_types()
        for change in changes:
            key = (change.plugin, change.stage)
            if memos is not None and change.data is not None:
                self.state.memos[key] = memos[key]
                continue
            kind = types.get(key)
            read = None if kind is None or change.data is None else read_memo(kind, change.version, change.data)
            if read is not None:
                self.state.memos[key] = read
            else:
                self.state.memos.pop(key, None)

    def _memo_types(self) -> dict[tuple[str, Stage], type[Memo]]:
        both = (*self.chosen.memo_types, *self.fallback.memo_types)
        return {(plugin, stage): kind for plugin, stage, kind in both}


def _full(state: State) -> bool:
    """Say whether nothing is free, and nobody's lease is over."""
    return not any(state.standing.space.free) and not state.standing.overdue


def _check_narrowed(everything: Offer, offer: Offer) -> None:
    if offer.gpus is not everything.gpus and not np.all(np.isin(offer.gpus, everything.gpus)):
        raise PlanError(Stage.ALLOCATION, "an offer can be narrowed, not widened")


def _record(plugin: str, record: Record) -> RecordTable:
    def read() -> RecordTable:
        return RecordTable(plugin=plugin, table=record.table, columns=dict(record.columns()))

    return ask(plugin, Stage.ALLOCATION, RecordTable, read)


def _empty(offer: Offer) -> Offer:
    return dataclasses.replace(offer, gpus=NO_GPUS, free_gpus=0)
