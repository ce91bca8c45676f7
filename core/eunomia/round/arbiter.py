"""The arbiter: a pure state machine without clock, threads or I/O; drivers pass in time and events."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from eunomia.contract.decisions import Decision, Fault, MemoChange, new_decision
from eunomia.contract.events import Event
from eunomia.contract.memos import Memo, read_memo
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import CallNote, Stages
from eunomia.contract.valuations import Valuations
from eunomia.fold.adopt import adopt
from eunomia.fold.fold import fold
from eunomia.fold.folding import Folding
from eunomia.model.cluster import Cluster
from eunomia.round.bids import close_if_due
from eunomia.round.invariants import check_state
from eunomia.round.round import Round, renewals
from eunomia.round.show import check_queues, show
from eunomia.round.strictness import is_strict
from eunomia.round.timing import Timing, lease_of
from eunomia.round.verdict_changes import verdicts_of
from eunomia.round.view import view_of
from eunomia.store.saving import load_state, save_state
from eunomia.store.state import State
from eunomia.units import Cause, Seconds, Stage

_put = object.__setattr__
_WOKEN = frozenset({Cause.WAKE})
NO_CAUSES: frozenset[Cause] = frozenset()
_NOTHING: Mapping[Any, Any] = {}
_Memos = Mapping[tuple[str, Stage], Memo]


class Arbiter:
    """Allocates the GPUs of a cluster to apps, with the stages of a profile.

    Args:
        cluster: the machines and GPUs.
        stages: stages of the chosen profile.
        fallback: stages of the profile used after too many faulty rounds.
        seed: seed of all random choices.
        plain: whether to rebuild the stages' index in each round, which is slower and leads to the same decisions.
    """

    def __init__(
        self, cluster: Cluster, stages: Stages, fallback: Stages, *, seed: int = 0, plain: bool = False
    ) -> None:
        self.state = State(cluster, seed=seed, plain=plain)
        self.view = view_of(self.state)
        """Read-only view of the arbiter's state, for all code outside core; ``load`` replaces it."""
        self.chosen = stages
        self.fallback = fallback
        self.note: CallNote | None = None
        """The driver's record into which each stage call is written; None: the driver needs none."""
        self.spent: defaultdict[str, int] = defaultdict(int)
        """Wall-clock nanoseconds of the stage calls in rounds, by stage; ``offer`` is the narrowing of offers."""
        self.strict = is_strict()
        """Whether plugin faults are raised, and the whole state is checked after every step."""
        if self.strict:
            check_queues(self.state)
        self._serving = stages
        self.timing = Timing(stages, cluster)
        """Decides when rounds are due, with the stages in use."""
        self.calls = 0
        """Number of stage calls so far."""

    @property
    def serving(self) -> Stages:
        """Return the stages in use: those of the chosen profile or of the fallback."""
        return self.fallback if self.state.counters.fallen_back else self.chosen

    def use(self, stages: Stages) -> None:
        """Use other stages from the next step on; the driver must send ``ProfileChanged`` in that step."""
        self.chosen = stages
        self._serve()
        self.timing.triggers()  # the allocation declares them now, not within the next round

    def step(self, now: Seconds, events: Iterable[Event] = ()) -> Decision:
        """Apply events, and make a round if one is due.

        Args:
            now: time in seconds since the start; not before the last step's.
            events: simultaneous events at this time, in any order.

        Returns:
            The decision, which is already adopted.

        Raises:
            EunomiaError: time goes backwards; in strict mode also: a plugin failed, or an invariant is broken.
        """
        state, closing = self.state, None
        folded = fold(state, now, events, grace=self._serving.rounds.suspend_grace)  # 1. fold: events, ends of leases
        changed = state.counters.fallen_back is not (self._serving is self.fallback)
        if changed or state.cluster is not self.timing.cluster:
            self._serve()
        if state.open is not None:  # an offer is open to app masters
            closing = close_if_due(state)
            causes = NO_CAUSES if closing is None else _WOKEN  # causes noted meanwhile are kept for the next round
        else:
            causes = self.timing.due(state)  # 2. due: the causes of a round
        if not causes:
            return self._decided(folded)
        if closing is None:
            state.counters.round += 1  # seeds depend on it: a round that opened an offer keeps its number
            if self._is_quiet(causes):
                ended = state.lease_ends.overdue  # leases, which are renewed
                return self._decided(folded, causes, {"renewals": renewals(state, self._serving)} if ended else {})
        made = Round(state, self._serving, causes, self.note, self.calls, self.spent)
        try:
            given = made.run(self.timing, closing)  # 3. menus to 8. check and plan
        except (Exception, SystemExit) as error:
            given = self._of_fault(folded, self._attributed(made, error))
        finally:
            self.calls = made.calls
        if closing is not None:
            given["closed"] = closing.offer.id
        return self._decided(folded, causes, given, made.memos)  # 9. adopt

    def replay(self, now: Seconds, events: Iterable[Event], decision: Decision) -> None:
        """Replay a step from the journal, without calling plugins."""
        state = self.state
        fold(state, now, events, grace=self._serving.rounds.suspend_grace)
        changed = state.counters.fallen_back is not (self._serving is self.fallback)
        if changed or state.cluster is not self.timing.cluster:
            self._serve()
        known = self.timing.known
        times = known is None or known.every is not None or bool(state.lease_ends.guards)
        if times and decision.causes and decision.closed is None:
            self.timing.due(state)  # notes the boundary, and the protected parts that have ended
        if decision.faults and decision.faulty:
            self._count_fault()
        elif decision.causes:
            state.counters.faults_in_row = 0
        adopt(state, decision)
        if decision.memos:
            self._adopt_memos(decision.memos)
        if self.strict:
            check_state(self.state)

    def abandon(self, now: Seconds, fault: Fault) -> Decision:
        """Make a faulty round for a step whose process was killed because a plugin did not return.

        Args:
            now: time in seconds since the start.
            fault: the fault, with the plugin and stage that did not return.
        """
        folded = fold(self.state, now, (), grace=self._serving.rounds.suspend_grace)
        self._serve()
        causes = self.timing.due(self.state)
        self.state.counters.round += 1
        return self._decided(folded, causes, self._of_fault(folded, fault))

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the present state, as stages get it."""
        return show(self.state, needs=self.serving.needs)

    def save(self) -> bytes:
        """Encode the whole state as bytes, for a checkpoint."""
        return save_state(self.state)

    def load(self, data: bytes) -> None:
        """Restore the state from a checkpoint; raise InputError if its format or its machines do not match."""
        self.state = load_state(data, self.state.cluster, self._memo_types(), plain=self.state.stages.plain)
        self.view = view_of(self.state)
        self._serve()

    def skip_epochs(self, last: int) -> None:
        """Make the epochs of later orders larger than ``last``, an epoch that machines have already received."""
        self.state.counters.last_epoch = max(self.state.counters.last_epoch, last)

    def standings(self) -> Valuations:
        """Return the value of each claim's present GPUs, by the valuation of an empty offer, for display.

        Raises:
            StageFaultError: the valuation failed.
        """
        made = Round(self.state, self.serving, frozenset(), self.note, self.calls)
        try:
            return made.standings()
        except (Exception, SystemExit) as error:
            fault = made.fault(error)
            if fault is None or fault is error:
                raise
            raise fault from error
        finally:
            self.calls = made.calls

    def _serve(self) -> None:
        """Select the stages of the chosen profile or of the fallback, and their timing."""
        self._serving = self.fallback if self.state.counters.fallen_back else self.chosen
        if self.timing.cluster is not self.state.cluster and self.strict:
            check_queues(self.state)
        if self.timing.stages is not self._serving or self.timing.cluster is not self.state.cluster:
            self.timing = Timing(self._serving, self.state.cluster)

    def _is_quiet(self, causes: frozenset[Cause]) -> bool:
        """Return whether a round needs no stages: no job wants more GPUs, or there is no GPU to grant.

        A placement that retunes is called as long as a lease holds GPUs, since it divides their CPUs and memory.
        While the triggers are unknown no round is quiet, so that a failure to declare them is a fault of its plugin.
        """
        state, timing = self.state, self.timing
        triggers, jobs = timing.known, state.waiting_jobs
        if triggers is None or timing.probes or (timing.retunes and state.leases):
            return False  # jobs are measured while GPUs are free
        free = not causes & triggers.all_on
        if (free or not triggers.when_served) and not jobs.rows and not jobs.short:
            return True
        served = free and not triggers.when_full and not self._serving.refiners and not state.lease_ends.overdue
        return served and not any(state.free_gpus.free)

    # --- outcomes of a step ----------------------------------------------------------------------------------------

    def _decided(
        self,
        folded: Folding,
        causes: frozenset[Cause] = NO_CAUSES,
        given: Mapping[str, Any] = _NOTHING,
        memos: _Memos = _NOTHING,
    ) -> Decision:
        """Make and adopt the decision of a step, with the fields that its round gives, and the round's new memos."""
        state, counters, serving = self.state, self.state.counters, self._serving.profile
        fields = {"orders": tuple(folded.orders), "faults": tuple(folded.refused), "serving": serving, **given}
        decision = new_decision(now=state.now, round=counters.round, version=counters.version, causes=causes, **fields)
        if decision.faults and decision.faulty:
            self._count_fault()
        elif causes:
            counters.faults_in_row = 0
        adopt(state, decision)
        if decision.memos:
            self._adopt_memos(decision.memos, memos)
        # The decision is not shared yet, and its last two fields follow from the adopted state.
        _put(decision, "version", counters.version)
        _put(decision, "wake_at", self.timing.next(state))
        if self.strict:
            check_state(state)
        return decision

    def _attributed(self, made: Round, error: BaseException) -> Fault:
        """Return a round's exception as its plugin's fault; re-raise it in strict mode, or if no plugin caused it."""
        fault = made.fault(error)
        if fault is None or (fault is error and self.strict):
            raise error
        if self.strict:
            raise fault from error
        return Fault(plugin=fault.plugin, stage=fault.stage, what=fault.what)

    def _of_fault(self, folded: Folding, fault: Fault) -> dict[str, Any]:
        """Return the fields of a faulty round's decision: overdue leases are renewed once, and memos are dropped."""
        state, serving = self.state, self._serving
        gone = [MemoChange(plugin=plugin, stage=stage, version=0, data=None) for plugin, stage in state.stages.memos]
        # Free GPUs must not stay idle until the next event: the round is tried again.
        again_in = min(lease_of(serving), serving.rounds.suspend_grace, 30.0)
        return {
            "renewals": renewals(state, serving),
            "memos": tuple(gone),
            "waiting": verdicts_of(state, None, [], (), "", fault=fault),
            "stage_wake_at": Seconds(state.now + again_in),
            "faults": (*folded.refused, fault),
        }

    def _count_fault(self) -> None:
        self.state.counters.faults_in_row += 1
        if self.state.counters.faults_in_row >= self.serving.rounds.faults_allowed:
            self.state.counters.fallen_back = True
            self._serve()

    def _adopt_memos(self, changes: Iterable[MemoChange], memos: _Memos | None = None) -> None:
        types = self._memo_types() if memos is None else {}
        for change in changes:
            key, data = (change.plugin, change.stage), change.data
            read = None if data is None or memos is None else memos[key]
            if data is not None and memos is None and key in types:
                read = read_memo(types[key], change.version, data)
            if read is not None:
                self.state.stages.memos[key] = read
            else:
                self.state.stages.memos.pop(key, None)

    def _memo_types(self) -> dict[tuple[str, Stage], type[Memo]]:
        both = (*self.chosen.memo_types, *self.fallback.memo_types)
        return {(plugin, stage): kind for plugin, stage, kind in both}
