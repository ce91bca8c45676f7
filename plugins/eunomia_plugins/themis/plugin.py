"""The plugin ``themis``: value GPUs by finish-time fairness, show offers to the worst-off apps, and hold auctions."""

from collections.abc import Mapping
from decimal import Decimal
from math import ceil
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    Bundle,
    ByBundle,
    Cause,
    Claims,
    Contract,
    Decision,
    Explanation,
    Feature,
    MachineClasses,
    Memo,
    Menus,
    Offer,
    PluginOptions,
    Promise,
    Share,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contract.bundles import offer_classes
from eunomia.contract.contracts import Contracts
from eunomia.model.shapes import Deferred, replaced
from eunomia.units import JobId
from eunomia_plugins.themis.apps import WorkCache, runs
from eunomia_plugins.themis.explaining import explain
from eunomia_plugins.themis.hold_auction import Lot, hold_auction
from eunomia_plugins.themis.last_auction import LastAuctions
from eunomia_plugins.themis.rho import BidContext, bid
from eunomia_solvers.choice import SolverChoice

NO_MACHINES: Final = MachineClasses.of(machine=(), free=(), gpu_type=(), rack=())
Factor = Annotated[float, Field(ge=1.0, allow_inf_nan=False)]


class SlowdownOptions(PluginOptions):
    """S(G), the slowdown by the locality of a job's GPUs, until it is measured (§4.3.1, footnote 3)."""

    machine: Factor = 1.0
    """Slowdown if all GPUs are on one machine."""
    rack: Factor = 1.1
    """Slowdown across machines of one rack."""
    cluster: Factor = 1.3
    """Slowdown across racks."""


class ThemisOptions(PluginOptions):
    """Options of ``themis``."""

    fairness_knob: Share = 0.8
    """f: an offer is shown to the worst-off ceil((1 - f) * apps) apps, at least one."""
    slowdown: SlowdownOptions = SlowdownOptions()
    """Slowdown by locality until it is measured."""
    standing_slowdown: bool = False
    """Whether the ρ by which apps are chosen for an offer includes the slowdown by locality that they report, as in the
    paper; an app then gains by overstating it (docs/decisions/0241)."""
    solver: SolverChoice = "fast"
    """``fast``: a fast exact algorithm; ``reference``: the specification in cvxpy, slow and for comparison."""
    nodes: Annotated[int, Field(ge=1)] = 500
    """Maximum number of search nodes of the integer programme, if an auction needs one; its gap is then recorded."""


class Themis:
    """Themis (Mahajan et al., NSDI 2020): claims are apps, bids are tables of ρ by bundle, and wins are pinned."""

    name = "themis"
    api = 1
    options_type = ThemisOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            gives=frozenset({Feature.BY_BUNDLE, Feature.SCORES, Feature.APP_CLAIMS}),
            promises=frozenset({Promise.SEPARABLE}),
        ),
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.BY_BUNDLE}),
            gives=frozenset({Feature.GRANTS, Feature.PINNED, Feature.APP_CLAIMS}),
            promises=frozenset({Promise.WORK_CONSERVING}),
        ),
    }

    memo_types: ClassVar[Mapping[Stage, type[Memo]]] = {Stage.ALLOCATION: LastAuctions}

    def __init__(self, options: ThemisOptions) -> None:
        self.options = options
        far = options.slowdown
        assumed = (1.0, far.machine, far.rack, far.cluster)
        self.cache = WorkCache(assumed, standing_slowdown=options.standing_slowdown)

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request an auction whenever GPUs become free or an app arrives (§3.3.2)."""
        return Triggers(on=frozenset({Cause.ARRIVED, Cause.FREED, Cause.LEASE_ENDED, Cause.CLUSTER_CHANGED}))

    @hookimpl
    def eunomia_offer(self, snapshot: Snapshot, menus: Menus, offer: Offer, standings: Valuations) -> Offer:
        """Show the offer to the apps with the worst ρ among those that can use it (Pseudocode 1, lines 16 and 17).

        An app that runs on no GPUs makes no progress and comes before all that run (§3.3.2: its ρ is unbounded). ρ is
        taken from the app's last auction (proof of Theorem 3.3), or if there is none, from its present forecast.
        """
        cluster, rows, gpus = snapshot.cluster, standings.claims.rows, offer.gpus
        if not gpus.size:
            return replaced(offer, apps=rows[:0])
        before, views = (self.cache.views(snapshot, menus, offer, these) for these in (gpus[:0], gpus))
        able = views.able(rows, np.bincount(cluster.gpu_type[gpus], minlength=len(cluster.gpu_types)))
        rho = self._last(snapshot).rho(views, rows, before)
        runs_now = np.zeros(snapshot.apps.arrived.size, dtype=bool)
        runs_now[snapshot.holdings.app[: cluster.gpus][runs(snapshot)]] = True
        running = runs_now[rows]
        order = np.lexsort((np.arange(rows.size), -rho, running))
        worst = rows[order[able[order]]]
        return replaced(offer, apps=worst[: bidders(worst.size, self.options.fairness_knob)])

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Return ρ of each app with its held GPUs, and with each bundle for which it bids (equations 1 and 2)."""
        rows = np.asarray(snapshot.active_apps if offer.apps is None else offer.apps, dtype=np.int32)
        claims, views = Claims(unit=Unit.APP, rows=rows), self.cache.views(snapshot, menus, offer)
        if not offer.gpus.size:
            now: Any = Deferred(views.rho_now, rows)  # the hook ``eunomia_offer`` does not read it
            return Valuations(claims=claims, forms=(replaced(ByBundle.of(NO_MACHINES, (), [[]] * rows.size), now=now),))
        classes = offer_classes(snapshot.cluster, offer)
        bids = [bid(view.facts.work, view.context, classes) for view in map(views.view, rows.tolist())]
        return Valuations(claims=claims, forms=(ByBundle.of(classes, views.rho_now(rows), bids),))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Hold the auction, compute the payments, and allocate the leftover GPUs."""
        bidders = valuations.claims.rows.tolist()
        others = snapshot.active_apps.tolist()
        views = self.cache.views(snapshot, menus, offer)
        bids = usable_rows(valuations.form(ByBundle), [views.view(row).context for row in bidders])
        free = np.bincount(snapshot.cluster.machine[offer.gpus], minlength=len(snapshot.cluster.machines))
        lot = Lot(bids, [*dict.fromkeys(bidders + others)], views, free, self._last(snapshot))
        return hold_auction(lot, self.options.solver, self.options.nodes, snapshot.rng(self.name))

    def _last(self, snapshot: Snapshot) -> LastAuctions:
        memo = snapshot.memos.of(self.name, Stage.ALLOCATION)
        return memo if isinstance(memo, LastAuctions) else LastAuctions(apps={})

    @hookimpl
    def eunomia_explain(self, snapshot: Snapshot, decision: Decision, job: JobId) -> Explanation | None:
        """Explain which apps won the GPUs, and the gain of each."""
        return explain(snapshot, decision, job, self.name)


def bidders(apps: int, fairness_knob: float) -> int:
    """Return the number of apps that are shown an offer: max(1, ceil((1 - f) * apps)).

    f is treated as the decimal fraction that was written; in binary floating point, f = 0.7 of 10 apps would give 4.
    """
    return max(1, ceil((1 - Decimal(repr(float(fairness_knob)))) * apps))


def usable_rows(bids: ByBundle, bidders: list[BidContext]) -> ByBundle:
    """Return the bids without rows that their app cannot use: a size not on its menu, or GPUs of another type."""
    sizes, types, kept = bids.sizes.tolist(), bids.classes.gpu_type, list[list[int]]()
    for claim, context in enumerate(bidders):
        on_menu, kind = {size - context.holds for size in context.usable.tolist()}, context.gpu_type
        rows = [row for row in bids.rows(claim) if sizes[row] in on_menu]
        kept.append([row for row in rows if kind < 0 or all(types[part[0]] == kind for part in bids.parts(row))])
    if sum(map(len, kept)) == len(sizes):
        return bids
    bundles = [[Bundle(bids.rho.item(row), bids.parts(row)) for row in rows] for rows in kept]
    return ByBundle.of(bids.classes, bids.now, bundles)
