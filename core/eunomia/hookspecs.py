"""All hooks, in the order in which a round calls them: four stages with what serves them, then observers and makers.

A stage is answered by the one plugin that the profile names for it. The arbiter calls it at most once a round (the
valuation twice where ``eunomia_offer`` is implemented), on read-only views that are valid during the call; what is
kept must be copied. A stage keeps nothing in itself that a decision depends on: it returns a memo. Raising,
answering ``None`` or an answer of another type is a fault: the round changes nothing, and is journaled with the
plugin's name. Implementations may take fewer arguments than a hook has.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from eunomia.allocations import Allocation
from eunomia.cluster import Cluster
from eunomia.contracts import Triggers
from eunomia.decisions import Decision
from eunomia.explanations import Explanation
from eunomia.menus import Menus
from eunomia.offers import Offer
from eunomia.placements import Placement
from eunomia.snapshot import Snapshot
from eunomia.units import JobId
from eunomia.valuations import Valuations

if TYPE_CHECKING:
    from typing import TypeVar

    F = TypeVar("F")

    def hookimpl(function: F) -> F:
        """Mark an implementation of a hook."""
        return function

    def hookspec(function: F) -> F:
        """Mark a specification that every plugin may answer."""
        return function

    def stage(function: F) -> F:
        """Mark a specification that one plugin answers."""
        return function

else:
    hookimpl = pluggy.HookimplMarker("eunomia")
    hookspec = pluggy.HookspecMarker("eunomia")
    stage = hookspec(firstresult=True)

API = 1
"""The version of these hooks; a plugin says which it was written for."""


class Hooks:
    """The hook specifications."""

    @stage
    def eunomia_triggers(self, cluster: Cluster) -> Triggers:
        """Say which events make a round; asked of the allocation, once at load and again when the cluster changes.

        Args:
            cluster: what there is.

        Returns:
            The triggers; the profile's ``[rounds]`` overrides them. Not implemented: a round at every arrival,
            freed GPU, ended lease and change of the cluster.
        """
        raise NotImplementedError

    @stage
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Say which sizes each job can run at now, how fast at each, and what changing costs.

        Args:
            snapshot: the state of this moment.

        Returns:
            A menu for every active job; a job without a curve gets nothing.
        """
        raise NotImplementedError

    @stage
    def eunomia_offer(self, snapshot: Snapshot, menus: Menus, offer: Offer, standings: Valuations) -> Offer:
        """Show the offer to some only; asked of the allocation. Not implemented: everything free, to everyone.

        Args:
            snapshot: the state of this moment.
            menus: the elasticity's answer.
            offer: all that may be touched.
            standings: the valuation of the empty offer: what each claim is worth as it stands.

        Returns:
            The offer, narrowed: ``replace(offer, apps=worst)``. GPUs can be left out, not added.
        """
        raise NotImplementedError

    @stage
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Say what the offer is worth to each claim.

        Called on the arbiter's snapshot, and by an app's agent on its own (``snapshot.only(app)``): a valuation that
        promises ``SEPARABLE`` gives the same rows in both.

        Args:
            snapshot: the state of this moment.
            menus: the elasticity's answer.
            offer: GPUs on offer; without GPUs, the standings are asked for.

        Returns:
            Claims and one or more forms.
        """
        raise NotImplementedError

    @stage
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Say who gets how much.

        Args:
            snapshot: the state of this moment.
            menus: the elasticity's answer.
            offer: what may be touched, and who may claim.
            valuations: the valuation's answer, with bids of app masters in the place of their apps' rows.

        Returns:
            Whole GPUs, or shares that the profile's refiners turn into whole GPUs.
        """
        raise NotImplementedError

    @stage
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Turn an allocation into another: shares into whole GPUs, grants of users into grants of jobs.

        Called of each refiner of the profile in its order. After the last one an allocation holds whole GPUs of
        jobs or apps.

        Args:
            snapshot: the state of this moment.
            menus: the elasticity's answer.
            offer: what may be touched.
            allocation: the answer of the stage before.

        Returns:
            The refined allocation.
        """
        raise NotImplementedError

    @stage
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Say on which GPUs, with which CPUs and memory.

        Args:
            snapshot: the state of this moment.
            menus: the elasticity's answer.
            offer: what may be touched.
            allocation: whole GPUs of jobs or apps.

        Returns:
            GPUs of the offer for each claim served. The arbiter checks the plan and refuses it whole if it breaks
            an invariant.
        """
        raise NotImplementedError

    @stage
    def eunomia_explain(self, snapshot: Snapshot, decision: Decision, job: JobId) -> Explanation | None:
        """Explain why a job waits; asked of the plugin that turned it down, when a user asks.

        Args:
            snapshot: the state of now.
            decision: the decision of the round that turned the job down.
            job: whose start is asked for.

        Returns:
            Words and numbers; None: the reason alone is shown.
        """
        raise NotImplementedError

    @hookspec
    def eunomia_round_finished(self, decision: Decision) -> None:
        """Observe a decision, after it was journaled; called by the driver, once a round, never in a dry run.

        Args:
            decision: the decision, to be read only.
        """

    @hookspec
    def eunomia_profiles(self) -> Mapping[str, Path]:  # type: ignore[empty-body]
        """Name the presets that this package ships; asked when profiles are listed.

        Returns:
            TOML files by name of preset.
        """

    @hookspec
    def eunomia_tuners(self) -> Mapping[str, str]:  # type: ignore[empty-body]
        """Name the tuners that this package ships; asked by app masters.

        Returns:
            ``module:class`` by the kind that an app file names.
        """

    @hookspec
    def eunomia_trace_readers(self) -> Mapping[str, str]:  # type: ignore[empty-body]
        """Name the trace readers that this package ships; asked where no built-in reader knows a trace.

        Returns:
            ``module:class`` by name of the format.
        """

    @hookspec
    def eunomia_runtimes(self) -> Mapping[str, str]:  # type: ignore[empty-body]
        """Name the runtimes that this package ships; asked by app masters.

        Returns:
            ``module:class`` by name.
        """


STAGE_HOOKS: Sequence[str] = (
    "eunomia_triggers",
    "eunomia_elasticity",
    "eunomia_offer",
    "eunomia_valuation",
    "eunomia_allocation",
    "eunomia_refine",
    "eunomia_placement",
    "eunomia_explain",
)
"""Hooks that the plugin named by the profile answers alone."""

Implementation = Any
"""A plugin: any object with a name, whose marked methods implement hooks."""
