"""One round: calls the stages of a profile in order, checks their answers and makes the plan.

A round does not change the state: the arbiter adopts its plan. ``at`` names the current stage and its plugin, so that
an exception from the stage, or from a check of its answer, is attributed to that plugin.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from eunomia.contract.allocations import Allocation
from eunomia.contract.contracts import Feature
from eunomia.contract.decisions import Fault, RecordTable, Renewal, Waiting
from eunomia.contract.keys import LinearKeyError
from eunomia.contract.memos import Memo
from eunomia.contract.menus import Menus, Probes, announced
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.records import Record
from eunomia.contract.stages import Rounds, Stages
from eunomia.contract.valuations import Valuations
from eunomia.contract.verdicts import NO_VERDICTS
from eunomia.model.leases import LeaseState
from eunomia.round.answers import Answer, StageFaultError, fault_of, mistyped
from eunomia.round.bids import Closing
from eunomia.round.invariants import check_allocation, check_placement, check_verdicts
from eunomia.round.plan import Plan, Target, plan, planned
from eunomia.round.plan_error import PlanError
from eunomia.round.probes import Prober, check_probes
from eunomia.round.verdict_changes import verdicts_of
from eunomia.state.offering import make_offer
from eunomia.state.show import show
from eunomia.state.state import State
from eunomia.units import NEVER, Cause, Ints, LeaseId, Scope, Seconds, Stage, Unit

T = TypeVar("T")
Observer = Callable[[str, Stage], None]
"""The driver's callback before each call of a stage, with the plugin and stage; it identifies a plugin that hangs."""

NO_GPUS: Final = np.empty(0, np.int64)
_ELASTICITY, _VALUATION, _ALLOCATION = Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION
_REFINE, _PLACEMENT = Stage.REFINE, Stage.PLACEMENT
_RECORDED: Final = (Menus, Allocation)
"""Answers that may have a record."""


class Round:
    """Calls each stage of one profile once.

    Args:
        state: the present state; not changed.
        stages: stages of the profile in use.
        causes: causes of the round.
        observer: called before each stage.

    Attributes:
        plan: transitions and renewals so far.
        opened: an offer to be sent to app masters; the round continues when their bids are in.
        calls: number of stage calls so far.
    """

    __slots__ = (
        "answers",
        "at",
        "calls",
        "considered",
        "memos",
        "observer",
        "opened",
        "plan",
        "records",
        "snapshot",
        "stages",
        "starts_at",
        "state",
        "wake_at",
    )

    def __init__(
        self, state: State, stages: Stages, causes: frozenset[Cause], observer: Observer | None = None
    ) -> None:
        self.state, self.stages, self.observer = state, stages, observer
        self.snapshot = show(state, causes, stages.needs)
        self.plan = Plan(transitions=[], renewals=[])
        self.opened: Offer | None = None
        self.considered: Offer | None = None
        self.answers: list[tuple[Stage, str, Answer]] = []
        self.memos: dict[tuple[str, Stage], Memo] = {}
        self.records: list[tuple[str, Stage, Record]] = []
        self.starts_at: tuple[tuple[int, float], ...] = ()
        self.wake_at: Seconds = NEVER
        self.calls = 0
        self.at: tuple[str, Stage] | None = None

    # --- the stages in order ---------------------------------------------------------------------------------------

    def run(self, scope: Scope) -> None:
        """Make the offer and call the stages; stop after opening the offer if app masters are to bid."""
        state, stages = self.state, self.stages
        menus = self._menus()
        offer = make_offer(state, scope, lease_of(stages), retune=retunes(stages))
        if stages.offer is not None:
            offer = self._narrowed(menus, offer)
        self.considered = offer
        if state.lease_ends.overdue:
            self.plan.renewals += renewals(state, stages, beyond=offer.gpus)
        deadline = stages.rounds.bid_deadline
        if deadline is not None and _has_bidders(state, offer):
            self.opened = dataclasses.replace(offer, whole=False, closes_at=Seconds(state.now + deadline))
            return
        valuations = self._ask(_VALUATION, Valuations, stages.valuation, self.snapshot, menus, offer)
        self._allocate(menus, offer, valuations)

    def resume(self, closing: Closing) -> None:
        """Continue with the bids of a closed offer; the valuation covers the apps that sent no bid."""
        stages, offer = self.stages, closing.offer
        self.considered = offer
        menus = self._menus()
        silent = dataclasses.replace(offer, apps=closing.silent)
        valuations = self._ask(_VALUATION, Valuations, stages.valuation, self.snapshot, menus, silent)
        self._allocate(menus, offer, closing.joined(valuations))

    def standings(self) -> Valuations:
        """The value of each claim's present holdings: the valuation of an empty offer."""
        menus = self._menus()
        empty = _empty(make_offer(self.state, Scope.FREE, lease_of(self.stages)))
        return self._ask(_VALUATION, Valuations, self.stages.valuation, self.snapshot, menus, empty)

    def _menus(self) -> Menus:
        """Ask the elasticity; announced regimes are filled in where it forecasts none, and probes are checked."""
        menus = self._ask(_ELASTICITY, Menus, self.stages.elasticity, self.snapshot)
        if menus.probe is not None:
            if Feature.PROBES not in self.stages.contract(_ELASTICITY).gives:
                rule = "an elasticity that probes must declare Feature.PROBES in the gives of its contract"
                raise PlanError(_ELASTICITY, rule, value="not declared")
            check_probes(self.state, menus.probe)
        coming = self.state.coming_regimes
        if coming and menus.regimes is None:
            return dataclasses.replace(menus, regimes=announced(coming))
        return menus

    def _narrowed(self, menus: Menus, everything: Offer) -> Offer:
        """Ask the allocation which GPUs to offer, and to which apps."""
        stages, snapshot = self.stages, self.snapshot
        empty = _empty(everything)
        standings = self._ask(_VALUATION, Valuations, stages.valuation, snapshot, menus, empty, keep=False)
        narrow = stages.offer
        if narrow is None:
            return everything
        offer = self._ask(_ALLOCATION, Offer, narrow, snapshot, menus, everything, standings, keep=False)
        if offer.gpus is not everything.gpus and not np.all(np.isin(offer.gpus, everything.gpus)):
            raise PlanError(_ALLOCATION, "a narrowed offer must not contain GPUs that were not on offer")
        return dataclasses.replace(offer, whole=False)

    def _allocate(self, menus: Menus, offer: Offer, valuations: Valuations) -> None:
        state, stages, snapshot = self.state, self.stages, self.snapshot
        allocation = self._ask(_ALLOCATION, Allocation, stages.allocation, snapshot, menus, offer, valuations)
        for refine, name in zip(stages.refiners, stages.refiner_names, strict=True):
            allocation = self._ask(_REFINE, Allocation, refine, snapshot, menus, offer, allocation, name=name)
        self.wake_at = self._wake_at(allocation, valuations)
        named = check_allocation(state, menus, offer, allocation)
        starts_at = () if allocation.starts_at is None else planned(allocation, allocation.starts_at)
        placement = self._ask(_PLACEMENT, Placement, stages.placement, snapshot, menus, offer, allocation)
        placed = check_placement(state, menus, offer, allocation, named, placement)
        made = plan(state, Target(offer, allocation, placement, named.rows, placed), _graced(stages.rounds, menus))
        self.plan.transitions += made.transitions
        self.plan.renewals += made.renewals
        if menus.probe is not None:
            self._probe(menus.probe)
        self.starts_at = starts_at
        self.at = None

    def _probe(self, probes: Probes) -> None:
        """Order the measurements that are possible now; a later round orders the rest."""
        prober = Prober(self.state, probes, self.plan.transitions, self.plan.renewals)
        self.plan.transitions += prober.orders()
        if prober.waits:
            self.wake_at = min(self.wake_at, Seconds(self.state.now + probes.again))

    # --- one stage -------------------------------------------------------------------------------------------------

    def _ask(
        self, stage: Stage, kind: type[T], call: Callable[..., T], *given: Any, name: str = "", keep: bool = True
    ) -> T:
        """Call a stage; with ``keep``, keep its answer, memo and record, and check its verdicts."""
        plugin = name or self.stages.names.get(stage) or stage.value
        self.at = plugin, stage
        self.calls += 1
        if self.observer is not None:
            self.observer(plugin, stage)
        made = call(*given)
        if not isinstance(made, kind):
            raise mistyped(plugin, stage, kind, made)
        if not keep:
            return made
        answer: Any = made
        if answer.memo is not None:
            self.memos[plugin, stage] = answer.memo
        if kind in _RECORDED and answer.record is not None:
            self.records.append((plugin, stage, answer.record))
        if answer.verdicts is not NO_VERDICTS:
            check_verdicts(self.state, stage, self._unit(answer), answer.verdicts)
        self.answers.append((stage, plugin, answer))
        return made

    def _unit(self, answer: Answer) -> Unit:
        """The unit of the rows in an answer's verdicts; a placement's verdicts use the allocation's unit."""
        if isinstance(answer, Menus):
            return Unit.JOB
        if isinstance(answer, Valuations | Allocation):
            return answer.claims.unit
        units = [given.claims.unit for _, _, given in self.answers if isinstance(given, Allocation)]
        return units[-1] if units else Unit.JOB

    def _wake_at(self, allocation: Allocation, valuations: Valuations) -> Seconds:
        """Time of the next round that a stage asks for; it must be later than now, or rounds would repeat forever."""
        now, names = self.state.now, self.stages.names
        value_at, allocate_at = valuations.wake_at, allocation.wake_at
        for stage, time in ((_VALUATION, value_at), (_ALLOCATION, allocate_at)):
            if not time > now:
                what = f"wake_at must be later than now, but got {time}"
                raise StageFaultError(names.get(stage, stage.value), stage, what)
        return min(allocate_at, value_at)

    # --- results ---------------------------------------------------------------------------------------------------

    def verdicts(self) -> tuple[Waiting, ...]:
        """The verdicts that change with this round."""
        opened = self.opened is not None
        return verdicts_of(self.state, self.considered, self.answers, self.plan.transitions, opened=opened)

    def tables(self) -> tuple[RecordTable, ...]:
        """The plugins' records as plain columns."""
        made = []
        for plugin, stage, record in self.records:
            self.at = plugin, stage
            made.append(RecordTable(plugin=plugin, table=record.table, columns=dict(record.columns())))
        return tuple(made)

    def memo_bytes(self) -> dict[tuple[str, Stage], bytes]:
        """Each memo's bytes, as its plugin writes them."""
        made = {}
        for (plugin, stage), memo in self.memos.items():
            self.at = plugin, stage
            made[plugin, stage] = memo.to_bytes()
            if not isinstance(made[plugin, stage], bytes):
                raise mistyped(plugin, stage, bytes, made[plugin, stage])
        return made

    def fault(self, error: BaseException) -> StageFaultError | None:
        """Attribute an exception of this round to the plugin that caused it; None: no plugin did."""
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


def lease_of(stages: Stages) -> Seconds:
    """Length of a lease under the profile; NEVER: leases do not end."""
    lease = stages.rounds.lease
    return NEVER if lease is None else lease


def retunes(stages: Stages) -> bool:
    """Whether the placement declares that it changes the CPUs and memory of running jobs."""
    return Feature.RETUNES in stages.contract(_PLACEMENT).gives


def renewals(state: State, stages: Stages, beyond: Ints = NO_GPUS) -> list[Renewal]:
    """Renew overdue leases for one term; with ``beyond``, only leases that hold none of those GPUs."""
    ended, ends_at = [state.leases[number] for number in sorted(state.lease_ends.overdue)], state.now + lease_of(stages)
    return [
        Renewal(lease=LeaseId(held.id), ends_at=Seconds(ends_at), protected_until=held.protected_until)
        for held in ended
        if held.state is not LeaseState.LEAVING and not np.isin(held.gpus, beyond).any()
    ]


def as_fault(error: StageFaultError) -> Fault:
    """The fault of a stage as part of a decision."""
    return Fault(plugin=error.plugin, stage=error.stage, what=error.what)


def _has_bidders(state: State, offer: Offer) -> bool:
    """Return whether any app that sees the offer has an app master that can bid."""
    if offer.gpus.size == 0:
        return False
    apps = state.present() if offer.apps is None else offer.apps
    return bool(np.any(state.apps.live.divides[apps] == 1))


def _graced(rounds: Rounds, menus: Menus) -> Rounds:
    """Return the profile's rounds; a job that leaves gets at least the release time that its menus declare."""
    release = menus.change.release
    return rounds if release <= rounds.suspend_grace else dataclasses.replace(rounds, suspend_grace=release)


def _empty(offer: Offer) -> Offer:
    return dataclasses.replace(offer, gpus=NO_GPUS, free_gpus=0)
