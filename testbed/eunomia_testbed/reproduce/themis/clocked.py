"""Measures the CPU time of arbiter and agents in each auction (§6.2.3), by a plugin ``themis`` with a clock."""

from time import thread_time_ns
from typing import Any

from eunomia import Allocation, Menus, Offer, Snapshot, Valuations, hookimpl
from eunomia.model.shapes import builds
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import default_registry
from eunomia_testbed.reproduce.recipes import Recipe, run_profile


@builds
class AuctionTimes:
    """CPU milliseconds of each auction in a run."""

    arbiter_ms: list[float]
    """Time to value all apps, choose the bidders, and run the auction with its payments and leftovers."""
    agent_ms: list[float]
    """Time to make the bids of an app, the mean over the apps that bid."""


def clocked_profile(recipe: Recipe) -> tuple[Profile, AuctionTimes]:
    """Return the profile of a recipe with a timed plugin ``themis``, and the times that a run appends.

    Raises:
        InputErrors: all errors in the recipe's settings.
    """
    registry, times = default_registry(), AuctionTimes(arbiter_ms=[], agent_ms=[])
    kind = with_clock(registry.load("themis"), times)
    return run_profile(recipe, registry=registry.adding(kind)), times


def with_clock(kind: type[Any], times: AuctionTimes) -> type[Any]:
    """Return a subclass of a plugin's class that records the time of each auction's calls in ``times``."""
    before = [0]  # nanoseconds for this round's valuations and choice of bidders

    @hookimpl
    def eunomia_offer(self: Any, snapshot: Snapshot, menus: Menus, offer: Offer, standings: Valuations) -> Offer:
        began, earlier = thread_time_ns(), before[0]
        shown: Offer = kind.eunomia_offer(self, snapshot, menus, offer, standings)
        before[0] = earlier + thread_time_ns() - began  # includes valuations, which are computed when first read
        return shown

    @hookimpl
    def eunomia_valuation(self: Any, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        began = thread_time_ns()
        made: Valuations = kind.eunomia_valuation(self, snapshot, menus, offer)
        spent = thread_time_ns() - began
        if is_auction(offer):
            times.agent_ms.append(spent / 1e6 / made.claims.rows.size)
        else:
            before[0] += spent
        return made

    @hookimpl
    def eunomia_allocation(
        self: Any, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations
    ) -> Allocation:
        began = thread_time_ns()
        made: Allocation = kind.eunomia_allocation(self, snapshot, menus, offer, valuations)
        if is_auction(offer):
            times.arbiter_ms.append((before[0] + thread_time_ns() - began) / 1e6)
        before[0] = 0
        return made

    hooks = (eunomia_offer, eunomia_valuation, eunomia_allocation)
    return type(kind.__name__, (kind,), {hook.__name__: hook for hook in hooks})


def is_auction(offer: Offer) -> bool:
    """Return whether a round offers GPUs to some apps only, that is, holds an auction."""
    return offer.apps is not None and bool(offer.apps.size and offer.gpus.size)
