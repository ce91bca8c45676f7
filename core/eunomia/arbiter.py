"""One round of arbitration: a pure state machine. No clock, no threads, no I/O; drivers give it time and events."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from eunomia.adopt import adopt, close_offer
from eunomia.allocations import Allocation
from eunomia.answers import StageFaultError, ask, verdicts_of
from eunomia.bids import Closing, closing_of
from eunomia.cluster import Cluster
from eunomia.contracts import Triggers
from eunomia.decisions import Decision, Fault, MemoChange, RecordTable, Renewal, Waiting
from eunomia.errors import EunomiaError
from eunomia.events import Event
from eunomia.fold import fold
from eunomia.folding import Folded
from eunomia.invariants import PlanError, check_allocation, check_placement, check_state, check_verdicts
from eunomia.leases import LeaseState
from eunomia.memos import Memo, read_memo
from eunomia.menus import Menus
from eunomia.offering import make_offer
from eunomia.offers import Offer
from eunomia.placements import Placement
from eunomia.plan import Plan, plan
from eunomia.records import Record
from eunomia.saving import load_state, save_state
from eunomia.snapshot import Snapshot
from eunomia.stages import DEFAULT_TRIGGERS, Stages
from eunomia.state import State
from eunomia.strictness import is_strict
from eunomia.units import NEVER, Cause, Ints, LeaseId, OfferId, Scope, Seconds, Stage, Unit
from eunomia.valuations import Valuations
from eunomia.workload import JobState

A = TypeVar("A")
NO_GPUS = np.empty(0, np.int64)
_BOUNDARY = frozenset({Cause.BOUNDARY})


@dataclasses.dataclass(slots=True)
class _Round:
    """What a round comes to, before it is adopted."""

    plan: Plan
    memos: dict[tuple[str, Stage], Memo] = dataclasses.field(default_factory=dict)
    records: list[tuple[str, Record]] = dataclasses.field(default_factory=list)
    answers: "list[tuple[Stage, str, Menus | Valuations | Allocation | Placement]]" = dataclasses.field(
        default_factory=list
    )
    offer: Offer | None = None
    """An offer to be opened: the round goes on when its bids are in."""
    considered: Offer | None = None
    wake_at: Seconds = NEVER
    starts_at: tuple[tuple[int, float], ...] = ()


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
        self.calls = 0
        """Calls of stages so far."""
        self.asking: Callable[[str, Stage], None] | None = None
        """Told who is about to be asked, so that a driver knows who hangs."""
        self.strict = is_strict()
        """Whether faults of plugins are raised, and the whole state is checked after every step."""

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
        causes = self._due()  # 2. is a round due?
        if not causes:
            return self._rest(folded)
        return self._decide(folded, causes, lambda: self._round(causes))  # 3. to 9.

    def replay(self, now: Seconds, events: Iterable[Event], decision: Decision) -> None:
        """Do again what ``step`` did, from the journal, without asking a plugin."""
        self._fold(now, events)
        if decision.causes and decision.closed is None:
            self._due()
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
        causes = self._due()
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
        snapshot = self.state.snapshot()
        menus = self._ask(Stage.ELASTICITY, Menus, lambda stages: stages.elasticity(snapshot))
        empty = _empty(make_offer(self.state, Scope.FREE, self._lease()))
        return self._ask(Stage.VALUATION, Valuations, lambda stages: stages.valuation(snapshot, menus, empty))

    # --- when ------------------------------------------------------------------------------------------------------

    def _fold(self, now: Seconds, events: Iterable[Event]) -> Folded:
        if not now >= self.state.now:
            raise EunomiaError("time must not go backwards", value=f"{now} after {self.state.now}")
        return fold(self.state, now, events, grace=self.serving.rounds.suspend_grace)

    def _triggers(self) -> Triggers:
        try:
            declared = self._declared()
        except StageFaultError:
            declared = DEFAULT_TRIGGERS  # the next round says so
        return self.serving.rounds.triggers(declared)

    def _declared(self) -> Triggers:
        """The triggers that the allocation declares."""
        declare = self.serving.triggers
        if declare is None:
            return DEFAULT_TRIGGERS
        return ask(self._name(Stage.ALLOCATION), Stage.ALLOCATION, Triggers, lambda: declare(self.state.cluster))

    def _due(self) -> frozenset[Cause]:
        """Causes of the round that is due now; empty: none is."""
        state, triggers = self.state, self._triggers()
        if triggers.every is not None and state.now >= state.last_boundary + triggers.every:
            state.last_boundary = Seconds(math.floor(state.now / triggers.every) * triggers.every)
            state.cause(Cause.BOUNDARY)
            return frozenset(state.causes)
        if Cause.BOUNDARY in state.causes:  # an executor's round is over
            return frozenset(state.causes)
        if state.now >= state.stage_wake_at:
            state.cause(Cause.WAKE)
            return frozenset(state.causes)
        if state.causes & triggers.on and state.now >= state.cause_since + triggers.settle:
            return frozenset(state.causes)
        return frozenset()

    def _next(self) -> Seconds:
        """When the next step is due without news."""
        state, triggers = self.state, self._triggers()
        times = [state.next_end(), state.stage_wake_at]
        if state.open is not None:
            times.append(state.open.offer.closes_at or NEVER)
        else:
            if state.causes & (triggers.on | _BOUNDARY):
                # What came while an offer was out is due at once: at the next moment that there is.
                soon = Seconds(math.nextafter(state.now, math.inf))
                times.append(max(Seconds(state.cause_since + triggers.settle), soon))
            if triggers.every is not None and state.job_rows:  # an empty cluster sleeps
                times.append(Seconds(state.last_boundary + triggers.every))
        backing = state.job_accounts.live.ready_at[: state.jobs.used]
        paused = state.jobs.live.state[: state.jobs.used] == JobState.PAUSED
        times += [Seconds(time) for time in backing[paused & (backing > state.now)].tolist()]
        later = [time for time in times if time > state.now]
        return min(later, default=NEVER)

    # --- the round -------------------------------------------------------------------------------------------------

    def _round(self, causes: frozenset[Cause]) -> _Round:
        """Ask the stages in order; nothing is changed but the round's number."""
        state, stages = self.state, self.serving
        scope = Scope.ALL if causes & stages.rounds.triggers(self._declared()).all_on else Scope.FREE
        if scope is Scope.FREE and self._quiet():
            return _Round(plan=Plan(transitions=[], renewals=self._renewals()))
        snapshot = state.snapshot(causes)
        result = _Round(plan=Plan(transitions=[], renewals=[]))
        menus = self._answer(result, Stage.ELASTICITY, Menus, lambda s: s.elasticity(snapshot))
        everything = make_offer(state, scope, self._lease())
        offer = self._narrow(snapshot, menus, everything)
        result.considered = offer
        result.plan.renewals += self._renewals(beyond=offer.gpus)
        deadline = stages.rounds.bid_deadline
        if deadline is not None and self._asks(offer):
            result.offer = dataclasses.replace(offer, closes_at=Seconds(state.now + deadline))
            return result
        valuations = self._answer(result, Stage.VALUATION, Valuations, lambda s: s.valuation(snapshot, menus, offer))
        return self._allocate(result, snapshot, menus, offer, valuations)

    def _narrow(self, snapshot: Snapshot, menus: Menus, everything: Offer) -> Offer:
        """Let the allocation show the offer to some only."""
        if self.serving.offer is None:
            return everything
        standings = self._ask(Stage.VALUATION, Valuations, lambda s: s.valuation(snapshot, menus, _empty(everything)))
        narrow = self.serving.offer
        offer = self._ask(Stage.ALLOCATION, Offer, lambda _: narrow(snapshot, menus, everything, standings))
        self._held(Stage.ALLOCATION, lambda: _check_narrowed(everything, offer))
        return offer

    def _asks(self, offer: Offer) -> bool:
        """Say whether there are app masters that can bid."""
        if offer.gpus.size == 0:
            return False
        apps = self.state.snapshot().active_apps if offer.apps is None else offer.apps
        return bool(np.any(self.state.apps.live.divides[apps] == 1))

    def _allocate(
        self, result: _Round, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations
    ) -> _Round:
        state, stages = self.state, self.serving
        allocation = self._answer(
            result, Stage.ALLOCATION, Allocation, lambda s: s.allocation(snapshot, menus, offer, valuations)
        )
        for refine, name in zip(stages.refiners, stages.refiner_names, strict=True):
            allocation = self._refine(result, name, lambda a=allocation, r=refine: r(snapshot, menus, offer, a))  # type: ignore[misc]
        giver = Stage.REFINE if stages.refiners else Stage.ALLOCATION
        result.wake_at = self._held(giver, lambda: self._wake_at(allocation, valuations))
        self._held(giver, lambda: check_allocation(state, menus, offer, allocation))
        placement = self._answer(
            result, Stage.PLACEMENT, Placement, lambda s: s.placement(snapshot, menus, offer, allocation)
        )
        self._held(Stage.PLACEMENT, lambda: check_placement(state, menus, offer, allocation, placement))
        grace = stages.rounds.suspend_grace
        made = self._held(Stage.PLACEMENT, lambda: plan(state, offer, allocation, placement, grace=grace))
        result.plan.transitions += made.transitions
        result.plan.renewals += made.renewals
        result.starts_at = self._held(giver, lambda: _planned(allocation))
        return result

    def _held(self, stage: Stage, check: Callable[[], A]) -> A:
        """Check an answer; what it makes fail in the core is a fault of the plugin that gave it."""
        try:
            return check()
        except (StageFaultError, PlanError) as error:
            if stage is not Stage.REFINE or isinstance(error, StageFaultError):
                raise
            what = str(error)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
        raise StageFaultError(self._name(stage), stage, what)

    def _wake_at(self, allocation: Allocation, valuations: Valuations) -> Seconds:
        """When a stage wants the next round: later than now, or this one would never end."""
        for stage, time in ((Stage.VALUATION, valuations.wake_at), (Stage.ALLOCATION, allocation.wake_at)):
            if not time > self.state.now:
                raise StageFaultError(self._name(stage), stage, f"wake_at must be later than now, but got {time}")
        return Seconds(min(allocation.wake_at, valuations.wake_at))

    def _refine(self, result: _Round, name: str, call: Callable[[], Allocation]) -> Allocation:
        self.calls += 1
        if self.asking is not None:
            self.asking(name, Stage.REFINE)
        allocation = ask(name, Stage.REFINE, Allocation, call)
        self._keep(result, Stage.REFINE, name, allocation)
        return allocation

    def _answer(self, result: _Round, stage: Stage, kind: type[A], call: Callable[[Stages], A]) -> A:
        answer = self._ask(stage, kind, call)
        self._keep(result, stage, self._name(stage), answer)
        return answer

    def _ask(self, stage: Stage, kind: type[A], call: Callable[[Stages], A]) -> A:
        self.calls += 1
        if self.asking is not None:
            self.asking(self._name(stage), stage)
        return ask(self._name(stage), stage, kind, lambda: call(self.serving))

    def _keep(self, result: _Round, stage: Stage, name: str, answer: object) -> None:
        """Take memo, verdicts and record off an answer."""
        memo = getattr(answer, "memo", None)
        if memo is not None:
            result.memos[name, stage] = memo
        record = getattr(answer, "record", None)
        if record is not None:
            result.records.append((name, record))
        if isinstance(answer, Menus | Valuations | Allocation | Placement):
            self._held(stage, lambda: check_verdicts(self.state, stage, _unit(result, answer), answer.verdicts))
            result.answers.append((stage, name, answer))

    def _name(self, stage: Stage) -> str:
        if stage is Stage.REFINE and self.serving.refiner_names:
            return self.serving.refiner_names[-1]
        return self.serving.names.get(stage, stage.value)

    def _lease(self) -> Seconds:
        return self.serving.rounds.lease if self.serving.rounds.lease is not None else NEVER

    def _quiet(self) -> bool:
        """Say whether nobody wants more than they hold."""
        state = self.state
        jobs = state.jobs.live
        if state.waiting().size:
            return False
        used = state.jobs.used
        runs = (jobs.state[:used] == JobState.RUNNING) | (jobs.state[:used] == JobState.STARTING)
        return not bool(np.any(runs & (state.job_accounts.live.gpus[:used] < jobs.most[:used])))

    def _renewals(self, beyond: Ints = NO_GPUS) -> list[Renewal]:
        """Ended leases that go on for one term; with ``beyond`` only those with no GPU on that offer."""
        state, lease = self.state, self._lease()
        return [
            Renewal(lease=LeaseId(held.id), ends_at=Seconds(state.now + lease), protected_until=held.protected_until)
            for held in state.leases.values()
            if held.ends_at <= state.now
            and held.state is not LeaseState.LEAVING
            and not np.isin(held.gpus, beyond).any()
        ]

    # --- its outcome -----------------------------------------------------------------------------------------------

    def _close(self, folded: Folded, closing: Closing) -> Decision:
        """Every bid is in, or the offer's time is over: go on where the round had stopped."""
        if self.state.open is None:
            return self._rest(folded)
        number = self.state.open.offer.id
        close_offer(self.state)
        causes = frozenset({Cause.WAKE})  # what happened meanwhile stays a cause of the next round

        def go_on() -> _Round:
            snapshot = self.state.snapshot(causes)
            result = _Round(plan=Plan(transitions=[], renewals=[]))
            result.considered = closing.offer
            menus = self._answer(result, Stage.ELASTICITY, Menus, lambda s: s.elasticity(snapshot))
            silent = dataclasses.replace(closing.offer, apps=closing.silent)
            valuations = self._answer(
                result, Stage.VALUATION, Valuations, lambda s: s.valuation(snapshot, menus, silent)
            )
            return self._allocate(result, snapshot, menus, closing.offer, closing.joined(valuations))

        return self._decide(folded, causes, go_on, closed=number)

    def _decide(
        self,
        folded: Folded,
        causes: frozenset[Cause],
        work: Callable[[], _Round],
        *,
        closed: OfferId | None = None,
    ) -> Decision:
        serving = self.serving.profile
        if closed is None:
            self.state.round += 1  # randomness follows from the round's number: an offer keeps its own
        try:
            result = work()
            waiting, memos = self._verdicts(result), self._memo_changes(result)
            records = tuple(self._record(name, record) for name, record in result.records)
        except (StageFaultError, PlanError) as error:
            if self.strict:
                raise
            return self._faulty(folded, causes, self._fault(error), closed)
        self.state.faults_in_row = 0
        decision = Decision(
            now=self.state.now,
            round=self.state.round,
            version=self.state.version,
            causes=causes,
            offers=() if result.offer is None else (result.offer,),
            closed=closed,
            orders=tuple(folded.orders),
            transitions=tuple(result.plan.transitions),
            renewals=tuple(result.plan.renewals),
            waiting=waiting,
            starts_at=tuple((self.state.job_id(row), time) for row, time in result.starts_at),
            records=records,
            faults=tuple(folded.refused),
            memos=memos,
            serving=serving,
            stage_wake_at=result.wake_at,
        )
        return self._adopt(decision, result.memos)

    def _verdicts(self, result: _Round) -> tuple[Waiting, ...]:
        return verdicts_of(self.state, result.considered, result.answers, result.plan, opened=result.offer is not None)

    def _record(self, plugin: str, record: Record) -> RecordTable:
        def read() -> RecordTable:
            return RecordTable(plugin=plugin, table=record.table, columns=dict(record.columns()))

        return ask(plugin, Stage.ALLOCATION, RecordTable, read)

    def _memo_changes(self, result: _Round) -> tuple[MemoChange, ...]:
        changes = []
        for (plugin, stage), memo in result.memos.items():
            data = ask(plugin, stage, bytes, memo.to_bytes)
            old = self.state.memos.get((plugin, stage))
            if old is None or old.to_bytes() != data:
                changes.append(MemoChange(plugin=plugin, stage=stage, version=memo.version, data=data))
        return tuple(changes)

    def _fault(self, error: StageFaultError | PlanError) -> Fault:
        if isinstance(error, StageFaultError):
            return Fault(plugin=error.plugin, stage=error.stage, what=error.what)
        return Fault(plugin=self._name(error.stage), stage=error.stage, what=str(error))

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
            waiting=verdicts_of(self.state, None, [], Plan(transitions=[], renewals=[]), fault=fault),
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
        adopt(self.state, decision)
        types = self._memo_types()
        for change in decision.memos:
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
        return dataclasses.replace(decision, version=self.state.version, wake_at=self._next())

    def _memo_types(self) -> dict[tuple[str, Stage], type[Memo]]:
        both = (*self.chosen.memo_types, *self.fallback.memo_types)
        return {(plugin, stage): kind for plugin, stage, kind in both}


def _check_narrowed(everything: Offer, offer: Offer) -> None:
    if not np.all(np.isin(offer.gpus, everything.gpus)):
        raise PlanError(Stage.ALLOCATION, "an offer can be narrowed, not widened")


def _planned(allocation: Allocation) -> tuple[tuple[int, float], ...]:
    if allocation.starts_at is None:
        return ()
    planned = zip(allocation.claims.rows.tolist(), allocation.starts_at.tolist(), strict=True)
    return tuple((row, time) for row, time in planned if math.isfinite(time))


def _unit(result: _Round, answer: "Menus | Valuations | Allocation | Placement") -> Unit:
    """What rows the verdicts of an answer are of; a placement's are of the allocation's unit."""
    if isinstance(answer, Menus):
        return Unit.JOB
    if not isinstance(answer, Placement):
        return answer.claims.unit
    units = [given.claims.unit for _, _, given in result.answers if isinstance(given, Allocation)]
    return units[-1] if units else Unit.JOB


def _empty(offer: Offer) -> Offer:
    return dataclasses.replace(offer, gpus=NO_GPUS, free_gpus=0)
