"""The programme of finish-time fairness: minimise the largest ρ."""

import numpy as np

from eunomia.units import Reals
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.programmes import highest_level

SAME = 1e-9
STEPS = 50


def least_rho(instance: Instance, left: Reals, alone: Reals, since: Reals) -> tuple[Reals, float]:
    """Minimise max over m of (since_m + left_m / throughput(m, X)) / alone_m.

    For a given ρ, a job needs the throughput left / (ρ alone - since). A ρ is therefore feasible if the highest common
    level of throughput over need is at least 1. The solution at any level has a largest ρ, from which the next step
    starts. Each step lowers ρ until the level is 1 (Newton's method on the level).

    Args:
        instance: jobs and capacity.
        left: [job] iterations left.
        alone: [job] total seconds that it would take on 1/n of the cluster.
        since: [job] seconds since its arrival.

    Returns:
        [job, type] time shares at which every job has exactly that ρ, and the ρ.
    """
    if instance.gpus.size == 0:
        return np.zeros(instance.rate.shape), 0.0
    if instance.pooled:
        total = float(instance.capacity.sum())
        part, rho = _on_one_pool(instance.gpus, left / instance.rate[:, 0], alone, since, total)
        return part[:, None] * (instance.capacity / total), rho
    share, _ = highest_level(instance, instance.rate / left[:, None])
    rho = _worst(instance, share, left, alone, since)
    for _ in range(STEPS):
        need = left / np.maximum(rho * alone - since, SAME)
        better, level = highest_level(instance, instance.rate / need[:, None])
        found = _worst(instance, better, left, alone, since)
        if found >= rho * (1.0 - SAME) or level <= 1.0 + SAME:
            break
        share, rho = better, found
    return share, rho


def _worst(instance: Instance, share: Reals, left: Reals, alone: Reals, since: Reals) -> float:
    throughput = (instance.rate * share).sum(axis=1)
    return float(((since + left / throughput) / alone).max())


def _on_one_pool(gpus: Reals, seconds: Reals, alone: Reals, since: Reals, total: float) -> tuple[Reals, float]:
    """Solve for a single pool by bisection: the time share that each job needs decreases as ρ increases.

    Args:
        gpus: [job] size of its gang.
        seconds: [job] seconds that its work left takes at a time share of 1.
        alone: see ``least_rho``.
        since: see ``least_rho``.
        total: number of GPUs in the pool.
    """
    low = float(((since + seconds) / alone).max())  # at which a job needs all the time
    part = seconds / (low * alone - since)
    if float(gpus @ part) <= total:
        return np.minimum(part, 1.0), low
    high = 2.0 * low
    while float(gpus @ (seconds / (high * alone - since))) > total:
        high *= 2.0
    while high - low > SAME * SAME * high:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if float(gpus @ (seconds / (middle * alone - since))) > total:
            low = middle
        else:
            high = middle
    return np.minimum(seconds / (high * alone - since), 1.0), high
