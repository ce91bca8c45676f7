"""The programmes as the paper states them, in cvxpy, job by job: the specification of the fast solvers.

They are slow and selected by ``solver = "reference"``; read them together with Gavel (OSDI'20), §3.1 and §4.
``X[m, j]`` is the fraction of time that job m runs on GPU type j, at the size of its gang.
"""

import importlib
from typing import Any

import numpy as np

from eunomia.units import Reals
from eunomia_plugins.gavel.instance import Instance
from eunomia_solvers import Solver, solve_cvxpy


def highest_level(instance: Instance, gain: Reals) -> tuple[Reals, float]:
    """Maximise min over m of sum_j gain[m, j] X[m, j] (equation 1, with X_equal and gangs in the gain)."""
    if instance.gpus.size == 0:
        return np.zeros(gain.shape), 0.0
    cp, share, fits = _stated(instance)
    problem = cp.Problem(cp.Maximize(cp.min(cp.sum(cp.multiply(gain, share), axis=1))), fits)
    solution = solve_cvxpy(problem, solver=Solver.CLARABEL, scale=_size(gain), place="gavel reference, level")
    return np.asarray(share.value), solution.objective


def greatest_sum(instance: Instance, value: Reals) -> tuple[Reals, float]:
    """Maximise the sum over m and j of value[m, j] X[m, j] (§4.1, throughput)."""
    if instance.gpus.size == 0:
        return np.zeros(value.shape), 0.0
    cp, share, fits = _stated(instance)
    problem = cp.Problem(cp.Maximize(cp.sum(cp.multiply(value, share))), fits)
    solution = solve_cvxpy(problem, scale=_size(value), place="gavel reference, sum")
    return np.asarray(share.value), solution.objective


def least_rho(instance: Instance, left: Reals, alone: Reals, since: Reals) -> tuple[Reals, float]:
    """Minimise max over m of (since_m + left_m / throughput(m, X)) / alone_m (§4.1, finish-time fairness).

    Args:
        instance: jobs and capacity.
        left: [job] iterations left.
        alone: [job] total seconds that it would take on 1/n of the cluster.
        since: [job] seconds since its arrival.
    """
    if instance.gpus.size == 0:
        return np.zeros(instance.rate.shape), 0.0
    cp, share, fits = _stated(instance)
    throughput = cp.sum(cp.multiply(instance.rate, share), axis=1)
    rho = cp.multiply(1.0 / alone, since + cp.multiply(left, cp.inv_pos(throughput)))
    problem = cp.Problem(cp.Minimize(cp.max(rho)), fits)
    solution = solve_cvxpy(problem, solver=Solver.CLARABEL, place="gavel reference, rho")
    return np.asarray(share.value), solution.objective


def _stated(instance: Instance) -> tuple[Any, Any, list[Any]]:
    """Return X and the constraints on allocations (§3.1): X >= 0, row sums of at most 1, and each type's capacity."""
    cp: Any = importlib.import_module("cvxpy")
    share = cp.Variable(instance.rate.shape, nonneg=True)
    fits = [cp.sum(share, axis=1) <= 1.0, instance.gpus @ share <= instance.capacity]
    excluded = np.where(instance.able & (instance.rate > 0.0), 0.0, 1.0)
    if excluded.any():
        fits.append(cp.multiply(excluded, share) == 0.0)
    return cp, share, fits


def _size(terms: Reals) -> float:
    return float(terms.max(initial=0.0)) or 1.0
