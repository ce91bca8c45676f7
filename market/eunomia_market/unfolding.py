"""Solve a market over time: one equilibrium, or one at each unexpected arrival."""

import dataclasses

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Bools, Reals
from eunomia_market.conditions import Conditions, conditions_of, finish_time_fairness
from eunomia_market.instance import Market
from eunomia_market.programme import Equilibrium, activities_of, equilibrium, welfare_of

UNSPENT = 1e-3
"""An agent with less than this fraction of its budget left counts as having spent all of it."""


@builds
class MarketOutcome:
    """Final purchases of all agents, and their prices."""

    bought: Reals
    """[N, J, T] units that each agent bought."""
    price: Reals
    """[J, T] prices at which each round was sold."""
    utility: Reals
    """[N] utility of each agent."""
    spent: Reals
    """[N] total payment of each agent."""
    rho: Reals
    """[N] finish-time fairness ρ of each agent."""
    welfare: float
    solved: tuple[tuple[int, Conditions], ...]
    """For each equilibrium that was solved: its first round, from 0, and the violations of its conditions."""


def unfold(market: Market) -> MarketOutcome:
    """Solve the market for all rounds.

    With known arrivals there is one equilibrium. With unexpected arrivals there is one at each arrival, over the
    remaining rounds, among the present agents, with their unspent budgets.
    """
    starts = sorted(set(market.arrives.tolist())) if market.surprise else [int(market.arrives.min())]
    bought, price = np.zeros_like(market.worth), np.zeros_like(market.supply)
    budget, solved = market.budget.copy(), []
    for start, end in zip(starts, [*starts[1:], market.rounds], strict=True):
        found = _at(market, budget, start)
        if found is None:
            continue
        agents, part, answer = found
        solved.append((start, conditions_of(part, answer)))
        bought[agents, :, start:end] = answer.bought[:, :, : end - start]
        price[:, start:end] = answer.price[:, : end - start]
        paid = (answer.bought[:, :, : end - start] * answer.price[:, : end - start]).sum(axis=(1, 2))
        budget[agents] = np.maximum(budget[agents] - paid, 0.0)
    utility = market.utility_of(bought)
    return MarketOutcome(
        bought=bought,
        price=price,
        utility=utility,
        spent=market.budget - budget,
        rho=finish_time_fairness(market, utility),
        welfare=welfare_of(market.budget, utility) if (utility > 0.0).all() else 0.0,
        solved=tuple(solved),
    )


def _at(market: Market, budget: Reals, start: int) -> tuple[Bools, Market, Equilibrium] | None:
    """Solve the rounds from ``start`` on; return None if no present agent can buy anything that gives it utility."""
    here = (market.arrives <= start) if market.surprise else np.ones(budget.size, dtype=bool)
    here = here & (budget > UNSPENT * market.budget)
    part = _part(market, budget, here, start)
    useful = np.zeros(here.size, dtype=bool)
    useful[np.flatnonzero(here)[np.unique(activities_of(part).owner)]] = True
    if not useful.any():
        return None
    part = _part(market, budget, useful, start)
    return useful, part, equilibrium(part)


def _part(market: Market, budget: Reals, agents: Bools, start: int) -> Market:
    return dataclasses.replace(
        market,
        names=tuple(name for name, kept in zip(market.names, agents.tolist(), strict=True) if kept),
        budget=budget[agents],
        arrives=np.maximum(market.arrives[agents] - start, 0),
        supply=market.supply[:, start:],
        worth=market.worth[agents, :, start:],
        rate=market.rate[agents, start:],
    )
