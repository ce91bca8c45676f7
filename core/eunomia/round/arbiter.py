"""The arbiter: a pure state machine without clock, threads or I/O; drivers pass in time and events."""

from collections.abc import Iterable

from eunomia.contract.contracts import Triggers
from eunomia.contract.decisions import Decision, Fault, MemoChange
from eunomia.contract.events import Event
from eunomia.contract.memos import Memo, read_memo
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import Stages
from eunomia.contract.valuations import Valuations
from eunomia.errors import EunomiaError
from eunomia.model.cluster import Cluster
from eunomia.round.bids import Closing, closing_of
from eunomia.round.invariants import check_state
from eunomia.round.round import Observer, Round, as_fault, lease_of, renewals
from eunomia.round.strictness import is_strict
from eunomia.round.timing import Timing
from eunomia.round.verdict_changes import verdicts_of
from eunomia.state.adopt import adopt, close_offer
from eunomia.state.fold import fold
from eunomia.state.folding import Folded
from eunomia.state.saving import load_state, save_state
from eunomia.state.show import show
from eunomia.state.state import State
from eunomia.units import Cause, OfferId, Scope, Seconds, Stage

_put = object.__setattr__
_FREE = Scope.FREE


class Arbiter:
    """Shares a cluster among apps by the stages of a profile.

    Args:
        cluster: the machines and GPUs.
        stages: stages of the chosen profile.
        fallback: stages of the profile that serves after too many faulty rounds.
        seed: determines all random choices.
        plain: whether stages see columns only, without the live index: slower, with the same decisions.
    """

    def __init__(
        self, cluster: Cluster, stages: Stages, fallback: Stages, *, seed: int = 0, plain: bool = False
    ) -> None:
        self.state = State(cluster, seed=seed, plain=plain)
        self.chosen = stages
        self.fallback = fallback
        self.asking: Observer | None = None
        """Called with a plugin and its stage before each call of the stage."""
        self.strict = is_strict()
        """Whether faults of plugins are raised, and the whole state is checked after every step."""
        self._serving = stages
        self.timing = Timing(stages)
        """When rounds are due under the stages in use."""
        self.calls = 0
        """Number of stage calls so far."""

    @property
    def serving(self) -> Stages:
        """The stages in use: those of the chosen profile, or the fallback's."""
        return self.fallback if self.state.fallen_back else self.chosen

    def use(self, stages: Stages) -> None:
        """Use other stages from the next step on; the driver sends ``ProfileChanged`` with that step."""
        self.chosen = stages
        self._serve()

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
        folded = self._fold(now, events)  # 1. what happened; leases that are over
        if self.state.open is not None:  # an offer is open to app masters
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
        return self._decide(folded, causes)  # 3. to 9.

    def replay(self, now: Seconds, events: Iterable[Event], decision: Decision) -> None:
        """Repeat a step from the journal, without calling a plugin."""
        self._fold(now, events)
        if decision.causes and decision.closed is None:
            self.timing.due(self.state)
        if decision.faulty:
            self._count_fault()
        elif decision.causes:
            self.state.faults_in_row = 0
        self._adopt(decision)

    def abandon(self, now: Seconds, fault: Fault) -> Decision:
        """Count a step that ended with its process, because a plugin did not return, as a faulty round.

        Args:
            now: seconds since the start.
            fault: names the plugin and the stage that did not return.
        """
        folded = self._fold(now, ())
        causes = self.timing.due(self.state)
        self.state.round += 1
        return self._faulty(folded, causes, fault, None)

    def snapshot(self) -> Snapshot:
        """The present state, as stages see it."""
        return show(self.state, needs=self.serving.needs)

    def save(self) -> bytes:
        """Encode the whole state, for a checkpoint."""
        return save_state(self.state)

    def load(self, data: bytes) -> None:
        """Restore the state from a checkpoint of an arbiter of the same cluster."""
        self.state = load_state(data, self.state.cluster, self._memo_types(), plain=self.state.plain)
        self._serve()

    def standings(self) -> Valuations:
        """The value of each claim's present holdings: the valuation of an empty offer, for screens.

        Raises:
            StageFaultError: the valuation failed.
        """
        made = Round(self.state, self.serving, frozenset(), self.asking)
        try:
            return made.standings()
        except (Exception, SystemExit) as error:
            fault = made.fault(error)
            if fault is None or fault is error:
                raise
            raise fault from error
        finally:
            self.calls += made.calls

    def _serve(self) -> None:
        """Use the stages of the chosen profile, or the fallback's, and their timing."""
        self._serving = self.serving
        if self.timing.stages is not self._serving:
            self.timing = Timing(self._serving)

    def _fold(self, now: Seconds, events: Iterable[Event]) -> Folded:
        state = self.state
        if not now >= state.now:
            raise EunomiaError("time must not go backwards", value=f"{now} after {state.now}")
        fallen_back = state.fallen_back
        folded = fold(state, now, events, grace=self._serving.rounds.suspend_grace)
        if state.fallen_back is not fallen_back:
            self._serve()
        return folded

    def _is_quiet(self, triggers: Triggers, causes: frozenset[Cause]) -> bool:
        """Return whether the round needs no stage: no job wants more GPUs, or there is no GPU to grant.

        A placement that retunes is asked as long as a lease holds GPUs, since it divides their CPUs and memory.
        If the triggers are not known yet, the round asks the allocation for them, and a failure is its fault.
        """
        if self.timing.probes:
            return False  # jobs are measured while GPUs are free
        state = self.state
        standing = state.standing
        if self.timing.retunes and state.leases:
            return False
        free = causes.isdisjoint(triggers.all_on)
        if (free or not triggers.when_served) and not standing.waiting and not standing.short:
            return True
        full = not any(standing.space.free) and not state.lease_ends.overdue
        return free and full and not triggers.when_full and not self._serving.refiners

    def _quiet(self, folded: Folded, causes: frozenset[Cause]) -> Decision:
        """Make a round without calling a stage: overdue leases are renewed."""
        state = self.state
        state.round += 1
        state.faults_in_row = 0
        decision = Decision(
            now=state.now,
            round=state.round,
            version=state.version,
            causes=causes,
            orders=tuple(folded.orders),
            renewals=tuple(renewals(state, self._serving)) if state.lease_ends.overdue else (),
            faults=tuple(folded.refused),
            serving=self._serving.profile,
        )
        return self._adopt(decision)

    # --- outcomes of a step ----------------------------------------------------------------------------------------

    def _close(self, folded: Folded, closing: Closing) -> Decision:
        """Continue the round of an offer that closes: every bid is in, or its deadline has passed."""
        number = closing.offer.id
        close_offer(self.state)
        causes = frozenset({Cause.WAKE})  # causes noted since the offer was opened are kept for the next round
        return self._decide(folded, causes, closing, closed=number)

    def _decide(
        self, folded: Folded, causes: frozenset[Cause], closing: Closing | None = None, *, closed: OfferId | None = None
    ) -> Decision:
        """Call the stages in order; if a plugin fails, the round changes nothing."""
        state, stages = self.state, self._serving
        if closing is None:
            state.round += 1  # seeds depend on the round's number: a round that opened an offer keeps its number
        made = Round(state, stages, causes, self.asking)
        try:
            if closing is None:
                triggers = self.timing.declared(state)
                made.run(_FREE if causes.isdisjoint(triggers.all_on) else Scope.ALL)
            else:
                made.resume(closing)
            waiting = made.verdicts()
            memos = self._memo_changes(made) if made.memos else ()
            records = made.tables() if made.records else ()
        except (Exception, SystemExit) as error:
            self.calls += made.calls
            fault = made.fault(error)
            if fault is None or (fault is error and self.strict):
                raise
            if self.strict:
                raise fault from error
            return self._faulty(folded, causes, as_fault(fault), closed)
        self.calls += made.calls
        state.faults_in_row = 0
        decision = Decision(
            now=state.now,
            round=state.round,
            version=state.version,
            causes=causes,
            offers=() if made.opened is None else (made.opened,),
            closed=closed,
            orders=tuple(folded.orders),
            transitions=tuple(made.plan.transitions),
            renewals=tuple(made.plan.renewals),
            waiting=waiting,
            starts_at=tuple([(state.job_id(row), time) for row, time in made.starts_at]) if made.starts_at else (),
            records=records,
            faults=tuple(folded.refused),
            memos=memos,
            serving=stages.profile,
            stage_wake_at=made.wake_at,
        )
        return self._adopt(decision, made.memos)

    def _memo_changes(self, made: Round) -> tuple[MemoChange, ...]:
        changes = []
        for (plugin, stage), data in made.memo_bytes().items():
            old = self.state.memos.get((plugin, stage))
            if old is None or old.to_bytes() != data:
                version = made.memos[plugin, stage].version
                changes.append(MemoChange(plugin=plugin, stage=stage, version=version, data=data))
        return tuple(changes)

    def _faulty(self, folded: Folded, causes: frozenset[Cause], fault: Fault, closed: OfferId | None) -> Decision:
        """Make the decision of a faulty round: overdue leases are renewed for one term, and memos are dropped."""
        decision = Decision(
            now=self.state.now,
            round=self.state.round,
            version=self.state.version,
            causes=causes,
            closed=closed,
            orders=tuple(folded.orders),
            renewals=tuple(renewals(self.state, self._serving)),
            faults=(*folded.refused, fault),
            memos=tuple(
                MemoChange(plugin=plugin, stage=stage, version=0, data=None) for plugin, stage in self.state.memos
            ),
            waiting=verdicts_of(self.state, None, [], (), fault=fault),
            serving=self.serving.profile,
            # Free GPUs must not stay idle until the next event: the round is tried again.
            stage_wake_at=Seconds(self.state.now + self._retry_after()),
        )
        self._count_fault()
        return self._adopt(decision)

    def _retry_after(self) -> float:
        return min(lease_of(self.serving), self.serving.rounds.suspend_grace, 30.0)

    def _count_fault(self) -> None:
        self.state.faults_in_row += 1
        if self.state.faults_in_row >= self.serving.rounds.faults_allowed:
            self.state.fallen_back = True
            self._serve()

    def _rest(self, folded: Folded) -> Decision:
        """Make the decision of a step without a round: only what follows from the events."""
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
        # The decision is not shared yet, and its last two fields follow from the adopted state.
        _put(decision, "version", state.version)
        _put(decision, "wake_at", self.timing.next(state))
        if self.strict:
            check_state(state)
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
