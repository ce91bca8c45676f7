"""The stages of a profile as typed callables, looked up once and called without pluggy."""

from collections.abc import Callable
from typing import Any, NamedTuple

from eunomia.contract.allocations import Allocation
from eunomia.contract.contracts import NO_CONTRACT, Contract, Contracts, Feature, Triggers
from eunomia.contract.decisions import Decision
from eunomia.contract.explanations import Explanation
from eunomia.contract.memos import Memo
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.valuations import Valuations
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.units import Cause, JobId, Scope, Seconds, Stage

# Bound hooks, which are called with positional arguments; ``hookspecs`` describes them.
ElasticityStage = Callable[[Snapshot], Menus]
ValuationStage = Callable[[Snapshot, Menus, Offer], Valuations]
OfferStage = Callable[[Snapshot, Menus, Offer, Valuations], Offer]
AllocationStage = Callable[[Snapshot, Menus, Offer, Valuations], Allocation]
RefineStage = Callable[[Snapshot, Menus, Offer, Allocation], Allocation]
PlacementStage = Callable[[Snapshot, Menus, Offer, Allocation], Placement]
ExplainStage = Callable[[Snapshot, Decision, JobId], Explanation | None]
TriggersHook = Callable[[Cluster], Triggers]
DEFAULT_TRIGGERS = Triggers(on=frozenset({Cause.ARRIVED, Cause.FREED, Cause.LEASE_ENDED, Cause.CLUSTER_CHANGED}))


@builds
class Rounds:
    """The profile's ``[rounds]``; a trigger that is None has the value that the allocation declares."""

    on: frozenset[Cause] | None = None
    every: Seconds | None = None
    settle: Seconds | None = None
    scope: Scope | None = None
    lease: Seconds | None = None
    """Length of a lease in seconds; None: unlimited."""
    protected: Seconds | None = None
    when_unprotected: bool | None = None
    bid_deadline: Seconds | None = None
    """Seconds that app masters have for their bids; None: the arbiter values every app itself."""
    suspend_grace: Seconds = Seconds(30.0)
    """Seconds from the warning to a suspended job until it is killed."""
    faults_allowed: int = 3
    """Consecutive faulty rounds before the fallback profile takes over."""

    def triggers(self, declared: Triggers) -> Triggers:
        """Return the allocation's triggers with the profile's overrides."""
        on = self.on if self.on is not None else declared.on
        if self.on is None and self.every is not None:
            on = frozenset()
        scope = self.scope
        all_on = declared.all_on if scope is None else (frozenset(Cause) if scope is Scope.ALL else frozenset())
        return Triggers(
            on=on,
            every=self.every if self.every is not None else declared.every,
            settle=self.settle if self.settle is not None else declared.settle,
            all_on=all_on,
            when_served=declared.when_served,
            when_full=declared.when_full,
            when_unprotected=declared.when_unprotected if self.when_unprotected is None else self.when_unprotected,
        )


@builds
class Stages:
    """A loaded profile: its stages as callables, the plugin of each, their contracts, and the rounds."""

    profile: str
    elasticity: ElasticityStage
    valuation: ValuationStage
    allocation: AllocationStage
    placement: PlacementStage
    refiners: tuple[RefineStage, ...] = ()
    offer: OfferStage | None = None
    triggers: TriggersHook | None = None
    names: dict[Stage, str]
    """Plugin name by stage; the names of refiners are in ``refiner_names``."""
    refiner_names: tuple[str, ...] = ()
    contracts: dict[Stage, Contracts]
    """All contracts of the plugin of each stage."""
    explain: dict[str, ExplainStage]
    """The ``eunomia_explain`` hook of each plugin, by plugin name."""
    rounds: Rounds
    memo_types: tuple[tuple[str, Stage, type[Memo]], ...] = ()
    """Memo types by plugin and stage, for deserializing memos from a journal."""
    needs: frozenset[Feature] = frozenset()
    """All features that the stages and refiners need."""
    weigh_users: tuple[str, ...] = ()
    """Names of the plugins whose answers depend on which user owns an app, in calling order."""

    def contract(self, stage: Stage) -> Contract:
        """Return the contract of a stage's plugin for that stage."""
        return self.contracts.get(stage, {}).get(stage, NO_CONTRACT)


class CallNote(NamedTuple):
    """The driver's record of the present call of a plugin, so that another process can find a plugin that hangs."""

    numbers: Any
    """Items 2, 1 and 0 are set in this order: number of the round, code of plugin and stage, number of the call."""
    codes: dict[tuple[str, Stage], int]
