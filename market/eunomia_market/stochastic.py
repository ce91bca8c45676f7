"""Appendix F: the policy that maximises expected Nash social welfare over time, on small instances.

The state of a job changes at random, with probabilities that depend on the job's allocated amount. Programme (6)
maximises the sum of budget x log(expected utility) over the frequency of each allocation in each state and round; the
optimal policy may choose allocations at random.
"""

import importlib
import itertools
from typing import Any

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import builds
from eunomia.units import Reals
from eunomia_solvers import solve_cvxpy

MOST_STATES = 4096
"""Largest accepted number of joint states x allocations of an instance."""


@builds
class Chain:
    """The Markov chain of one job, independent of other jobs: S states, A amounts that the job may be allocated."""

    budget: float
    first: Reals
    """[S] probability of each state in the first round."""
    moves: Reals
    """[A, S, S] transition probabilities, by amount, current state and next state."""
    gain: Reals
    """[A, S, S] utility of each transition."""


@builds
class StochasticMarket:
    """Jobs that share one unit of a resource in each round."""

    chains: tuple[Chain, ...]
    amounts: Reals
    """[A] fractions of the unit that a job may be allocated, ascending from 0."""
    rounds: int

    def allocations(self) -> list[tuple[int, ...]]:
        """Return all allocations that do not exceed the unit, each as one index into ``amounts`` per job."""
        every = itertools.product(range(self.amounts.size), repeat=len(self.chains))
        return [one for one in every if self.amounts[list(one)].sum() <= 1.0 + 1e-12]

    def states(self) -> list[tuple[int, ...]]:
        """Return all joint states, each as one state index per job."""
        return list(itertools.product(*(range(chain.first.size) for chain in self.chains)))


@builds
class ExpectedOptimum:
    """The solution of programme (6)."""

    visits: Reals
    """[T, joint state, allocation] probability that the jobs are in this state and receive this allocation."""
    expected: Reals
    """[job] expected utility of each job over all rounds."""
    objective: float
    """The sum of budget x log(expected utility)."""


def expected_optimum(market: StochasticMarket) -> ExpectedOptimum:
    """Solve programme (6): choose how often each allocation is used in each joint state and round.

    Raises:
        InputError: probabilities that do not sum to 1, or an instance that is too large.
        SolveError: no solver found a solution.
    """
    _check(market)
    cp: Any = importlib.import_module("cvxpy")
    first, move, gain = joint(market)
    actions, states = move.shape[0], move.shape[1]
    visits = [cp.Variable((states, actions), nonneg=True) for _ in range(market.rounds)]
    rows = [cp.sum(visits[0], axis=1) == first]
    for before, after in itertools.pairwise(visits):
        flow = sum(move[action].T @ before[:, action] for action in range(actions))
        rows.append(cp.sum(after, axis=1) == flow)
    budget = np.array([chain.budget for chain in market.chains])
    utility = [sum(cp.sum(cp.multiply(gain[job].T, visit)) for visit in visits) for job in range(budget.size)]
    solve_cvxpy(cp.Problem(cp.Maximize(budget @ cp.log(cp.hstack(utility))), rows), place="stochastic market")
    made = np.array([np.asarray(visit.value) for visit in visits])
    expected = np.array([float(one.value) for one in utility])
    return ExpectedOptimum(visits=made, expected=expected, objective=float(budget @ np.log(expected)))


def joint(market: StochasticMarket) -> tuple[Reals, Reals, Reals]:
    """Return the joint chain: initial probabilities [S], transition probabilities [A, S, S], mean gain [job, A, S]."""
    states, allocations = market.states(), market.allocations()
    first = np.array([np.prod([c.first[s] for c, s in zip(market.chains, one, strict=True)]) for one in states])
    move = np.zeros((len(allocations), len(states), len(states)))
    gain = np.zeros((len(market.chains), len(allocations), len(states)))
    for a, amounts in enumerate(allocations):
        for s, at in enumerate(states):
            parts = [chain.moves[amount, own] for chain, amount, own in zip(market.chains, amounts, at, strict=True)]
            move[a, s] = [np.prod([p[n] for p, n in zip(parts, after, strict=True)]) for after in states]
            for job, (chain, amount, own) in enumerate(zip(market.chains, amounts, at, strict=True)):
                gain[job, a, s] = float(chain.moves[amount, own] @ chain.gain[amount, own])
    return first, move, gain


def _check(market: StochasticMarket) -> None:
    size = len(market.states()) * len(market.allocations())
    if size > MOST_STATES:
        raise InputError(f"a stochastic market must have at most {MOST_STATES} states x allocations", value=str(size))
    for number, chain in enumerate(market.chains, start=1):
        for name, rows in (("first", chain.first), ("moves", chain.moves)):
            if (rows < 0.0).any() or not np.allclose(rows.sum(axis=-1), 1.0):
                rule = f"probabilities of {name} must be at least 0 and sum to 1"
                raise InputError(rule, value=str(rows.sum(axis=-1).ravel()[:4]), place=f"job {number}")
