"""The programmes as the paper states them, in cvxpy, claim by claim: the specification of the fast solvers."""

import importlib
from typing import Any

import numpy as np

from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.groups import Groups
from eunomia_solvers import solve_cvxpy


def state_noncooperative(groups: Groups) -> Answer:
    """Solve the non-cooperative programme, (9a) to (9c); throughputs are equal per unit of weight (§4.2.3)."""
    return _solved(groups, lambda cp, gpus: _equal(cp, groups, gpus))


def state_cooperative(groups: Groups) -> Answer:
    """Solve the cooperative programme, (10a) to (10c); envy is judged per unit of weight (§4.2.3)."""
    return _solved(groups, lambda cp, gpus: _envy_free(groups, gpus))


def state_efficient(groups: Groups) -> Answer:
    """Solve equation (4): maximise the sum of throughputs."""
    return _solved(groups, lambda cp, gpus: [])


def _equal(cp: Any, groups: Groups, gpus: Any) -> list[Any]:
    level = cp.Variable()
    return [cp.sum(cp.multiply(groups.speedup, gpus), axis=1) == groups.weight * level]


def _envy_free(groups: Groups, gpus: Any) -> list[Any]:
    rows = []
    for claim in range(groups.weight.size):
        own = groups.speedup[claim] @ gpus[claim] / groups.weight[claim]
        rows += [
            own >= groups.speedup[claim] @ gpus[other] / groups.weight[other]
            for other in range(groups.weight.size)
            if other != claim
        ]
    return rows


def _solved(groups: Groups, more: Any) -> Answer:
    cp: Any = importlib.import_module("cvxpy")
    gpus = cp.Variable(groups.speedup.shape, nonneg=True)
    rows = [cp.sum(gpus, axis=0) <= groups.gpus, *more(cp, gpus)]
    problem = cp.Problem(cp.Maximize(cp.sum(cp.multiply(groups.speedup, gpus))), rows)
    solution = solve_cvxpy(problem, scale=float(np.abs(groups.speedup).max(initial=1.0)), place="oef reference")
    return Answer(
        gpus=np.asarray(gpus.value), objective=solution.objective, bound=solution.objective, path="specification"
    )
