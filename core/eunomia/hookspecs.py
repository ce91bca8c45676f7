"""All hooks: the hooks of stages, in the order in which a round calls them, then observers and lists of extensions.

The profile names one plugin for each stage. The arbiter calls a stage at most once a round (the valuation twice
where ``eunomia_offer`` is implemented) and passes read-only views that are valid during the call: a plugin copies
what it keeps. A plugin object stores only its options and caches: a cache is derived from the options and the
arguments of calls, and an empty cache leads to the same answers. Any other state on which later answers depend must
be returned as a memo. Unless a hook states otherwise, it is a fault if a plugin raises, or returns ``None`` or a type
other than the hook's: the round changes nothing, and the journal records the fault with the plugin's name. An
implementation may take fewer arguments than its hook has.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pluggy

from eunomia.contract.allocations import Allocation
from eunomia.contract.contracts import Triggers
from eunomia.contract.decisions import Decision
from eunomia.contract.explanations import Explanation
from eunomia.contract.menus import Menus
from eunomia.contract.metrics import Metric
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.valuations import Valuations
from eunomia.model.cluster import Cluster
from eunomia.units import JobId

F = TypeVar("F")
if TYPE_CHECKING:

    def hookimpl(function: F) -> F:
        """Mark a method as the implementation of a hook."""
        return function

else:
    hookimpl = pluggy.HookimplMarker("eunomia")
hookspec = pluggy.HookspecMarker("eunomia")
stage = hookspec(firstresult=True)

API = 1
"""The version of these hooks; the ``api`` attribute of a plugin names the version for which it was written."""


class Hooks:
    """The specifications of all hooks."""

    @stage
    def eunomia_triggers(self, cluster: Cluster) -> Triggers:
        """Declare which events start a round.

        Called once when the profile is loaded and again when the cluster changes, on the plugin that answers the
        allocation stage.

        Args:
            cluster: the machines and GPUs.

        Returns:
            The triggers; the profile's ``[rounds]`` overrides them. Without an implementation, every arrival, freed
            GPU, ended lease and change of the cluster starts a round. ``None`` is a fault.
        """
        raise NotImplementedError

    @stage
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Return the sizes that each job can run at now, its speed at each, and the cost of changing its size.

        Called first in every round.

        Args:
            snapshot: the current state.

        Returns:
            A menu for every active job; a job without a curve gets no GPUs. ``None`` is a fault.
        """
        raise NotImplementedError

    @stage
    def eunomia_offer(self, snapshot: Snapshot, menus: Menus, offer: Offer, standings: Valuations) -> Offer:
        """Restrict the round's offer to some apps or some GPUs.

        Called after the elasticity and before the valuation, on the plugin that answers the allocation stage.

        Args:
            snapshot: the current state.
            menus: the elasticity's answer.
            offer: every GPU that this round may reassign, open to every app.
            standings: the valuation of an empty offer: the value to each claim of the GPUs that it already holds.

        Returns:
            The narrowed offer, such as ``replace(offer, apps=worst)``; it may remove GPUs but not add any. Without an
            implementation the offer is unchanged. ``None`` is a fault.
        """
        raise NotImplementedError

    @stage
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Return the value of the offer to each claim.

        Called after the elasticity; where ``eunomia_offer`` is implemented, also before it, with an offer without GPUs.
        An app's agent calls the hook too, on the part of the snapshot that the app may see (``snapshot.only(app)``):
        a valuation that promises ``SEPARABLE`` returns the same rows in both calls.

        Args:
            snapshot: the current state.
            menus: the elasticity's answer.
            offer: the GPUs on offer; if it has no GPUs, return the value of the GPUs that each claim already holds.

        Returns:
            The claims, and their values in one or more forms. ``None`` is a fault.
        """
        raise NotImplementedError

    @stage
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Decide how many GPUs each claim gets.

        Called after the valuation, or after the bids of the app masters where the profile sets a bid deadline.

        Args:
            snapshot: the current state.
            menus: the elasticity's answer.
            offer: the GPUs that may be reassigned, and the apps that may claim them.
            valuations: the valuation's answer; the bid of an app master replaces the rows of its app.

        Returns:
            Whole GPUs, or shares that the profile's refiners turn into whole GPUs. ``None`` is a fault.
        """
        raise NotImplementedError

    @stage
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Convert an allocation: shares into whole GPUs, or grants to users into grants to jobs.

        Called after the allocation, on each refiner in the order of the profile.

        Args:
            snapshot: the current state.
            menus: the elasticity's answer.
            offer: the GPUs that may be reassigned.
            allocation: the answer of the allocation, or of the previous refiner.

        Returns:
            The refined allocation; the last refiner returns whole GPUs of jobs or apps. ``None`` is a fault.
        """
        raise NotImplementedError

    @stage
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Choose the GPUs of each claim, with their CPUs and memory.

        Called last in a round, after the refiners.

        Args:
            snapshot: the current state.
            menus: the elasticity's answer.
            offer: the GPUs that may be reassigned.
            allocation: whole GPUs of jobs or apps.

        Returns:
            GPUs of the offer for each claim served. The arbiter checks the resulting plan and rejects all of it if it
            breaks an invariant. ``None`` is a fault.
        """
        raise NotImplementedError

    @stage
    def eunomia_explain(self, snapshot: Snapshot, decision: Decision, job: JobId) -> Explanation | None:
        """Explain why a job waits.

        Called when a user asks, on the plugin that turned the job down, and on the valuation's plugin if the order of
        service was the reason. An exception is logged, and only this explanation is lost.

        Args:
            snapshot: the current state, not the state at the time of the round.
            decision: the decision of the round that turned the job down.
            job: the waiting job.

        Returns:
            A text and numbers, shown after the reason. ``None``, or no implementation: the reason is shown alone.
        """
        raise NotImplementedError

    @hookspec
    def eunomia_round_finished(self, decision: Decision) -> None:
        """Observe the decision of a round.

        Called once a round, after the decision is journaled, on each observer of the profile; never in a dry run.
        An exception is recorded with the observer's name and affects neither the round nor other observers.

        Args:
            decision: the decision; read only.
        """

    @hookspec
    def eunomia_profiles(self) -> Mapping[str, Path]:  # type: ignore[empty-body]
        """List the presets that the plugin's package ships.

        Called when presets are looked up, on a plugin made with its default options.

        Returns:
            The path of a TOML file for each preset name. A plugin that raises or returns ``None`` adds no preset.
        """

    @hookspec
    def eunomia_tuners(self) -> Mapping[str, str]:  # type: ignore[empty-body]
        """List the tuners that the plugin's package ships.

        Called by app masters, on a plugin made with its default options.

        Returns:
            ``module:class`` for each tuner kind that an app file may name. A built-in kind cannot be replaced. A plugin
            that raises or returns ``None`` adds no tuner, and a warning is logged.
        """

    @hookspec
    def eunomia_trace_readers(self) -> Mapping[str, str]:  # type: ignore[empty-body]
        """List the trace readers that the plugin's package ships.

        Called when a trace has no built-in format, on a plugin made with its default options.

        Returns:
            ``module:class`` for each format name. A built-in format cannot be replaced. A plugin that raises or returns
            ``None`` adds no reader, and a warning is logged.
        """

    @hookspec
    def eunomia_engine(self) -> str:  # type: ignore[empty-body]
        """Name the engine that the plugin ships: a cluster manager, such as Slurm, that provides machines.

        Called when an engine with the plugin's name is looked up, on a plugin made with its default options.

        Returns:
            ``module:class`` of an ``eunomia_engines.EngineKind``; built-in ones are not replaced. ``None`` is a fault.
        """

    @hookspec
    def eunomia_metrics(self) -> Sequence[Metric]:  # type: ignore[empty-body]
        """List the metrics that the plugin adds to the tables of a run.

        Called when the tables of a simulated or live run are written, on a plugin made with its default options. Every
        plugin that was found is called, whether or not a profile names it.

        Returns:
            The metrics. Each becomes a column of its table; its summary figures become columns of ``summary.csv`` and
            appear on the report page. If a plugin raises, or a metric breaks a rule or cannot be computed, a simulation
            ends with an error that names the plugin; a live run omits the metrics of plugins and logs a warning.
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
"""Hooks that are called on the plugins of a profile's stages, and whose return values are used."""
