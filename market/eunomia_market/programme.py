"""The Eisenberg-Gale programme of Appendix C: its solution is the market's equilibrium, its duals are the prices."""

import importlib
from typing import Any, NamedTuple

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals
from eunomia_market.instance import Market, Utility
from eunomia_solvers import solve_cvxpy


class Activities(NamedTuple):
    """Activities, the columns of the programme: each has an owner, a utility, and the units that it uses.

    A linear agent has an activity for each resource and round, which uses one unit. A Leontief agent has one activity
    for each round, which uses all the units that the agent needs.
    """

    owner: Ints
    """[K] the agent to which each activity belongs."""
    gain: Reals
    """[K] utility of one unit of each activity."""
    use: Reals
    """[K, J, T] units that one unit of each activity uses."""


@builds
class Equilibrium:
    """A market equilibrium: an allocation with prices, for N agents, J resources and T rounds."""

    bought: Reals
    """[N, J, T] units that each agent buys."""
    price: Reals
    """[J, T] price of one unit, in units of budget."""
    utility: Reals
    """[N] utility of each agent over all rounds."""
    welfare: float
    """Nash social welfare over time (equation 1): the geometric mean of utilities, weighted by budgets."""


def activities_of(market: Market) -> Activities:
    """Return the activities of all agents since their arrivals; activities without utility are left out."""
    here = market.present()
    return _of_linear(market, here) if market.utility is Utility.LINEAR else _of_leontief(market, here)


def _of_linear(market: Market, here: Reals) -> Activities:
    worth = market.worth * here[:, None, :] * (market.supply > 0.0)
    owner, resource, round_ = np.nonzero(worth)
    use = np.zeros((owner.size, *market.supply.shape))
    use[np.arange(owner.size), resource, round_] = 1.0
    return Activities(owner, worth[owner, resource, round_], use)


def _of_leontief(market: Market, here: Reals) -> Activities:
    covered = ~((market.worth > 0.0) & (market.supply <= 0.0)).any(axis=1) & (market.worth > 0.0).any(axis=1)
    owner, round_ = np.nonzero(market.rate * here * covered)
    use = np.zeros((owner.size, *market.supply.shape))
    use[np.arange(owner.size), :, round_] = market.worth[owner, :, round_]
    return Activities(owner, market.rate[owner, round_], use)


def equilibrium(market: Market) -> Equilibrium:
    """Maximise the sum of budget x log(utility) within the supply (equation 3).

    Raises:
        SolveError: no solver found a solution.
    """
    cp: Any = importlib.import_module("cvxpy")
    activities = activities_of(market)
    owner, gain, use = activities
    agents, most = len(market.names), _most(market, activities)
    # Activities are fractions of their largest amounts, so that all numbers of the programme are near 1.
    part = cp.Variable(owner.size, nonneg=True)
    of_agent = np.zeros((agents, owner.size))
    of_agent[owner, np.arange(owner.size)] = gain * most
    possible = of_agent.sum(axis=1, keepdims=True)
    there = np.flatnonzero(market.supply.ravel() > 0.0)
    supply = market.supply.ravel()[there]
    sold = (use * most[:, None, None]).reshape(owner.size, -1).T[there] / supply[:, None]
    within = sold @ part <= 1.0
    mean = market.budget.mean()
    goal = cp.Maximize((market.budget / mean) @ cp.log((of_agent / possible) @ part))
    solve_cvxpy(cp.Problem(goal, [within]), place="market")
    levels = np.maximum(np.asarray(part.value), 0.0) * most
    bought = np.zeros((agents, *market.supply.shape))
    np.add.at(bought, owner, use * levels[:, None, None])
    utility: Reals = of_agent @ (levels / most)
    price = np.zeros(market.supply.size)
    price[there] = np.abs(np.asarray(within.dual_value)) * mean / supply
    return Equilibrium(
        bought=bought,
        price=price.reshape(market.supply.shape),
        utility=utility,
        welfare=welfare_of(market.budget, utility),
    )


def _most(market: Market, activities: Activities) -> Reals:
    """Return the largest amount of each activity that the whole supply allows, [K]."""
    use, supply = activities.use, np.broadcast_to(market.supply, activities.use.shape)
    allowed: Reals = np.divide(supply, use, out=np.full(use.shape, np.inf), where=use > 0.0).min(axis=(1, 2))
    return allowed


def welfare_of(budget: Reals, utility: Reals) -> float:
    """Return the Nash social welfare over time (equation 1)."""
    return float(np.exp((budget * np.log(utility)).sum() / budget.sum()))
