"""Check the equilibrium conditions (Appendix C.2) from prices and purchases alone, and compute finish-time fairness."""

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Reals
from eunomia_market.instance import Market
from eunomia_market.programme import Equilibrium, activities_of

TOLERANCE = 1e-3
"""A condition holds if its relative violation is at most this; with several optima a conic solver leaves about 1e-4."""


@builds
class Conditions:
    """Relative violations of the equilibrium conditions; 0 if a condition holds exactly."""

    optimal_spending: float
    """Largest relative gain in utility that an agent could still achieve with its budget at these prices."""
    market_clearing: float
    """Largest value of the unsold units of a resource in a round, as a fraction of the sum of all budgets."""
    budget_clearing: float
    """Largest fraction of a budget that is unspent or overspent."""
    oversold: float
    """Largest excess of units sold over the supply, as a fraction of the supply."""

    @property
    def hold(self) -> bool:
        """Return whether all conditions hold within ``TOLERANCE``."""
        return max(self.optimal_spending, self.market_clearing, self.budget_clearing, self.oversold) <= TOLERANCE


def conditions_of(market: Market, found: Equilibrium) -> Conditions:
    """Return how far an equilibrium violates each condition; an agent's best purchase uses only its best activity."""
    sold = found.bought.sum(axis=0)
    left = np.maximum(market.supply - sold, 0.0)
    over = np.maximum(sold - market.supply, 0.0)
    some = np.where(market.supply > 0.0, market.supply, 1.0)
    best = affordable(market, found.price)
    return Conditions(
        optimal_spending=float((best / found.utility - 1.0).max()),
        market_clearing=float((found.price * left).max() / market.budget.sum()),
        budget_clearing=float(np.abs(spent(found) / market.budget - 1.0).max()),
        oversold=float((over / some).max()),
    )


def spent(found: Equilibrium) -> Reals:
    """Return the total payment of each agent over all rounds, [N]."""
    paid: Reals = (found.bought * found.price).sum(axis=(1, 2))
    return paid


def affordable(market: Market, price: Reals) -> Reals:
    """Return the greatest utility that each agent's budget buys at these prices, [N]; inf if its units cost nothing."""
    owner, gain, use = activities_of(market)
    cost = (use * price).sum(axis=(1, 2))
    by_budget = np.divide(gain, cost, out=np.full(gain.size, np.inf), where=cost > 0.0)
    best = np.zeros(market.budget.size)
    np.maximum.at(best, owner, by_budget)
    return best * market.budget


def finish_time_fairness(market: Market, utility: Reals) -> Reals:
    """Return ρ of each agent, [N]: utility of 1/N of the supply since arrival, over utility in the market (App. E)."""
    alone = market.utility_of(np.broadcast_to(market.supply / market.budget.size, market.worth.shape))
    rho: Reals = np.divide(alone, utility, out=np.full(alone.size, np.inf), where=utility > 0.0)
    return rho
