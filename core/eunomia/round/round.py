"""One round: call the stages of a profile in order, check their answers, and make the plan.

A round does not change the state; the arbiter adopts its plan. The attribute ``at`` names the current stage and its
plugin, to which exceptions from the stage, or from a check of its answer, are attributed.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, Final, TypeVar

import numpy as np

from eunomia.contract.allocations import Allocation
from eunomia.contract.contracts import Feature
from eunomia.contract.decisions import MemoChange, RecordTable, Renewal, Transition
from eunomia.contract.keys import LinearKeyError
from eunomia.contract.memos import Memo
from eunomia.contract.menus import Menus, Probes, announced
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.records import Record
from eunomia.contract.stages import CallNote, Stages
from eunomia.contract.valuations import Valuations
from eunomia.contract.verdicts import NO_VERDICTS
from eunomia.model.gpu_sets import NO_GPUS
from eunomia.model.leases import LeaseState
from eunomia.model.shapes import replaced
from eunomia.round.answers import PlanError, StageFaultError, StageVerdicts, fault_of, mistyped
from eunomia.round.bids import Closing
from eunomia.round.invariants import check_verdicts
from eunomia.round.plan import Planner, check_allocation, starts
from eunomia.round.probes import Prober, check_probes
from eunomia.round.show import make_offer, show
from eunomia.round.timing import Timing, lease_of
from eunomia.round.verdict_changes import OUTRANKED, verdicts_of
from eunomia.store.state import State
from eunomia.units import NEVER, Cause, Ints, LeaseId, Scope, Seconds, Stage, Unit

T = TypeVar("T")
NARROWING: Final = "offer"
"""Key of the time spent in an allocation that narrows offers."""
_NAMES: Final = {stage: stage.value for stage in Stage}

_ELASTICITY, _VALUATION, _ALLOCATION = Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION
_REFINE, _PLACEMENT = Stage.REFINE, Stage.PLACEMENT
_RECORDED: Final = (Menus, Allocation)
"""Types of answers that may have a record."""


class Round:
    """One round with the stages of a profile, each called once.

    Args:
        state: the present state, which is not changed.
        stages: stages of the profile in use.
        causes: causes of the round.
        note: the driver's record into which each stage call is written; None: the driver needs none.
        calls: number of stage calls before this round.
        spent: wall-clock nanoseconds by stage, to which the time of each call is added; None: a new mapping.

    Attributes:
        snapshot: the state as the stages see it.
        transitions, renewals: the plan so far.
        opened: the offer to send to app masters; a later step closes it with their bids. None: no offer is opened.
        calls: number of stage calls so far.
        verdicts: verdicts of the stages, in calling order.
        unit: unit of the claims of the last valuation or allocation.
    """

    opened: Offer | None = None
    unit = Unit.JOB
    wake_at: Seconds = NEVER
    at: tuple[str, Stage] | None = None

    def __init__(
        self,
        state: State,
        stages: Stages,
        causes: frozenset[Cause],
        note: CallNote | None = None,
        calls: int = 0,
        spent: defaultdict[str, int] | None = None,
    ) -> None:
        self.state, self.stages, self.note, self.calls = state, stages, note, calls
        self.spent = defaultdict(int) if spent is None else spent
        self.snapshot = show(state, causes, stages.needs)
        self.transitions: list[Transition] = []
        self.renewals: list[Renewal] = []
        self.verdicts: list[StageVerdicts] = []
        self.memos: dict[tuple[str, Stage], Memo] = {}
        self.records: list[tuple[str, Stage, Record]] = []

    # --- the steps of a round, by their numbers in ``Arbiter.step`` ---------------------------------------------------

    def run(self, timing: Timing, closing: Closing | None = None) -> dict[str, Any]:
        """Call the stages, make the plan, and return the fields of the decision; stop early if an offer is opened."""
        state, stages, snapshot, scope = self.state, self.stages, self.snapshot, Scope.FREE
        if closing is None and snapshot.causes & (timing.known or timing.declared()).all_on:
            scope = Scope.ALL
        menus = self.ask(_ELASTICITY, Menus, stages.elasticity, snapshot)  # 3. menus
        if menus.probe is not None or state.reports.coming_regimes:
            menus = self._completed(menus)
        offer = closing.offer if closing else make_offer(state, scope, timing.lease, retune=timing.retunes)  # 4. offer
        if closing is None and (stages.offer or state.lease_ends.overdue or stages.rounds.bid_deadline is not None):
            offer = self._offered(menus, offer)
        if self.opened is not None:
            return self._outcome(offer, None)
        given = snapshot, menus, offer
        asked = offer if closing is None else dataclasses.replace(offer, apps=closing.silent)
        valuations = self.ask(_VALUATION, Valuations, stages.valuation, snapshot, menus, asked)  # 5. value
        if closing is not None:
            valuations = closing.joined(valuations)
        allocation = self.ask(_ALLOCATION, Allocation, stages.allocation, *given, valuations)  # 6. allocate
        for refine, name in zip(stages.refiners, stages.refiner_names, strict=True):
            allocation = self.ask(_REFINE, Allocation, refine, *given, allocation, name=name)
        self.wake_at = valuations.wake_at if valuations.wake_at < allocation.wake_at else allocation.wake_at
        if not (valuations.wake_at > state.now and allocation.wake_at > state.now):
            raise self._too_soon(valuations.wake_at, allocation.wake_at)
        granted = check_allocation(state, menus, offer, allocation)
        placement = self.ask(_PLACEMENT, Placement, stages.placement, *given, allocation)  # 7. place
        plain = not granted[1] and allocation.claims.unit is Unit.JOB and not state.stages.plain
        orders = starts(state, (offer, allocation, placement), granted[0], stages.rounds) if plain else None  # 8. plan
        if orders is not None and menus.probe is None:
            self.transitions = orders
            return self._outcome(offer, allocation, starts_only=bool(orders))
        planner = Planner(state, menus, (offer, allocation, placement), granted, stages.rounds)
        self.transitions = planner.run() if orders is None else orders
        self.renewals += planner.renewals
        if menus.probe is not None:
            self._probe(menus.probe)
        return self._outcome(offer, allocation)

    def standings(self) -> Valuations:
        """Return the value of each claim's present GPUs, by the valuation of an empty offer."""
        menus = self._completed(self.ask(_ELASTICITY, Menus, self.stages.elasticity, self.snapshot))
        empty = replaced(make_offer(self.state, Scope.FREE, lease_of(self.stages)), gpus=NO_GPUS, free_gpus=0)
        return self.ask(_VALUATION, Valuations, self.stages.valuation, self.snapshot, menus, empty)

    def _completed(self, menus: Menus) -> Menus:
        """Check the probes in menus, and fill in announced regimes if the elasticity forecasts none."""
        if menus.probe is not None:
            if Feature.PROBES not in self.stages.contract(_ELASTICITY).gives:
                rule = "an elasticity that probes must declare Feature.PROBES in the gives of its contract"
                raise PlanError(_ELASTICITY, rule, value="not declared")
            check_probes(self.state, menus.probe)
        coming = self.state.reports.coming_regimes
        return dataclasses.replace(menus, regimes=announced(coming)) if coming and menus.regimes is None else menus

    def _offered(self, menus: Menus, offer: Offer) -> Offer:
        """Return the offer, narrowed if the allocation implements ``eunomia_offer``; renew overdue leases outside it.

        The offer is opened to app masters if the profile collects bids and an app that sees the offer can bid.
        """
        state, stages = self.state, self.stages
        if stages.offer is not None:
            offer = self._narrowed(menus, offer)
        if state.lease_ends.overdue:
            self.renewals += renewals(state, stages, beyond=offer.gpus)
        deadline = stages.rounds.bid_deadline
        sees = () if deadline is None else state.present() if offer.apps is None else offer.apps
        if deadline is not None and offer.gpus.size and state.apps.live.divides[sees].any():
            self.opened = dataclasses.replace(offer, whole=False, closes_at=Seconds(state.now + deadline))
        return offer

    def _narrowed(self, menus: Menus, everything: Offer) -> Offer:
        """Return the offer after the allocation has narrowed its GPUs and apps."""
        stages, snapshot = self.stages, self.snapshot
        empty = replaced(everything, gpus=NO_GPUS, free_gpus=0)
        standings = self.ask(_VALUATION, Valuations, stages.valuation, snapshot, menus, empty, keep=False)
        narrow = stages.offer
        if narrow is None:
            return everything
        offer = self.ask(_ALLOCATION, Offer, narrow, snapshot, menus, everything, standings, keep=False)
        if offer.gpus is not everything.gpus and not np.all(np.isin(offer.gpus, everything.gpus)):
            raise PlanError(_ALLOCATION, "a narrowed offer must not contain GPUs that were not on offer")
        return replaced(offer, whole=False)

    def _too_soon(self, of_valuation: Seconds, of_allocation: Seconds) -> StageFaultError:
        """Return the fault of a stage that requests a round not later than now, which would repeat forever."""
        late = of_valuation > self.state.now
        stage, time = (_ALLOCATION, of_allocation) if late else (_VALUATION, of_valuation)
        name = self.stages.names.get(stage, stage.value)
        return StageFaultError(name, stage, f"wake_at must be later than now, but got {time}")

    def _probe(self, probes: Probes) -> None:
        """Order the measurements that are possible now; later rounds order the rest."""
        prober = Prober(self.state, probes, self.transitions, self.renewals)
        self.transitions += prober.orders()
        if prober.waits:
            self.wake_at = min(self.wake_at, Seconds(self.state.now + probes.again))

    # --- one stage -------------------------------------------------------------------------------------------------

    def ask(
        self, stage: Stage, kind: type[T], call: Callable[..., T], *given: Any, name: str = "", keep: bool = True
    ) -> T:
        """Call a stage and return its answer; ``keep``: store its memo and record, and check and store its verdicts."""
        plugin = name or self.stages.names[stage]
        self.at = at = plugin, stage
        self.calls += 1
        if self.note is not None:
            numbers, codes = self.note
            numbers[2], numbers[1], numbers[0] = self.state.counters.round, codes[at], self.calls
        timed, began = NARROWING if kind is Offer else _NAMES[stage], perf_counter_ns()
        try:
            made = call(*given)
        finally:
            self.spent[timed] += perf_counter_ns() - began
        if type(made) is not kind and not isinstance(made, kind):
            raise mistyped(plugin, stage, kind, made)
        if not keep:
            return made
        answer: Any = made
        if kind is Valuations or kind is Allocation:
            self.unit = answer.claims.unit
        if answer.memo is not None:
            self.memos[plugin, stage] = answer.memo
        if kind in _RECORDED and answer.record is not None:
            self.records.append((plugin, stage, answer.record))
        if answer.verdicts is not NO_VERDICTS:
            check_verdicts(self.state, stage, self.unit, answer.verdicts)
            if answer.verdicts.rows.size:
                self.verdicts.append(StageVerdicts(stage, plugin, self.unit, answer.verdicts))
        return made

    # --- results ---------------------------------------------------------------------------------------------------

    def _outcome(self, offer: Offer, allocation: Allocation | None, *, starts_only: bool = False) -> dict[str, Any]:
        """Return the fields of the decision; ``allocation`` is None if the round opened its offer."""
        state, transitions = self.state, self.transitions
        found: dict[str, Any] = {"transitions": tuple(transitions), "stage_wake_at": self.wake_at}
        if self.memos or self.records or self.renewals or allocation is None or allocation.starts_at is not None:
            found |= self._more(allocation, state.stages.memos)
        self.at = None
        by, index = "" if allocation is None else self.stages.names[_ALLOCATION], state.waiting_jobs
        if starts_only and not self.verdicts and offer.apps is None and index.default == (*OUTRANKED, by):
            # The round changes only the verdicts of jobs that do not start and whose last verdict is not the default.
            started = {state.names.jobs[order.job] for order in transitions if order.job is not None}
            if index.off_default <= started:
                return found
        found["waiting"] = verdicts_of(state, offer, self.verdicts, transitions, by, opened=allocation is None)
        return found

    def _more(self, allocation: Allocation | None, before: Mapping[tuple[str, Stage], Memo]) -> dict[str, Any]:
        """Return the opened offer, planned starts, renewals, memos that differ from ``before``, and records."""
        memos, tables = list[MemoChange](), list[RecordTable]()
        found: dict[str, Any] = {"renewals": tuple(self.renewals)}
        if allocation is None:
            found["offers"] = (self.opened,)
        elif allocation.starts_at is not None:
            times = zip(allocation.claims.listed["rows"], allocation.starts_at.tolist(), strict=True)
            found["starts_at"] = tuple((self.state.job_id(row), time) for row, time in times if math.isfinite(time))
        for (plugin, stage), memo in self.memos.items():
            self.at = plugin, stage
            data, old = memo.to_bytes(), before.get((plugin, stage))
            if not isinstance(data, bytes):
                raise mistyped(plugin, stage, bytes, data)
            if old is None or old.to_bytes() != data:
                memos.append(MemoChange(plugin=plugin, stage=stage, version=memo.version, data=data))
        for plugin, stage, record in self.records:
            self.at = plugin, stage
            tables.append(RecordTable(plugin=plugin, table=record.table, columns=dict(record.columns())))
        return found | {"memos": tuple(memos), "records": tuple(tables)}

    def fault(self, error: BaseException) -> StageFaultError | None:
        """Return the fault of the plugin that caused an exception of this round; None if no plugin did."""
        if isinstance(error, StageFaultError):
            return error
        if self.at is None:
            return None
        plugin, stage = self.at
        if isinstance(error, LinearKeyError):  # the allocation called a function of the valuation
            return fault_of(self.stages.names.get(_VALUATION, ""), _VALUATION, error.__cause__ or error)
        if not isinstance(error, PlanError):
            return fault_of(plugin, stage, error)
        if error.stage is not stage and stage is not _REFINE:  # a check of an earlier stage's answer
            plugin, stage = self.stages.names.get(error.stage, error.stage.value), error.stage
        return StageFaultError(plugin, stage, str(error))


def renewals(state: State, stages: Stages, beyond: Ints = NO_GPUS) -> tuple[Renewal, ...]:
    """Return renewals of overdue leases for one term, except of leases with GPUs in ``beyond``."""
    ended, ends_at = [state.leases[number] for number in sorted(state.lease_ends.overdue)], state.now + lease_of(stages)
    return tuple(
        Renewal(lease=LeaseId(held.id), ends_at=Seconds(ends_at), protected_until=held.protected_until)
        for held in ended
        if held.state is not LeaseState.LEAVING and not np.isin(held.gpus, beyond).any()
    )
