"""Volatile Fisher markets (Shockwave, §4 and Appendices C to F): equilibria of small instances, and their conditions.

A tool for analysis and for tests: no policy solves a market here. ``read_market`` reads an instance, ``equilibrium``
solves the Eisenberg-Gale programme of Appendix C in cvxpy, ``conditions_of`` checks its solution independently,
``unfold`` solves a market in which agents arrive unexpectedly, and ``stochastic`` covers Appendix F.
"""

from eunomia_market.conditions import Conditions, conditions_of
from eunomia_market.instance import Market, Utility, read_market
from eunomia_market.programme import Equilibrium, equilibrium
from eunomia_market.unfolding import MarketOutcome, unfold

__all__ = [
    "Conditions",
    "Equilibrium",
    "Market",
    "MarketOutcome",
    "Utility",
    "conditions_of",
    "equilibrium",
    "read_market",
    "unfold",
]
