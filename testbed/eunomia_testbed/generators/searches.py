"""Generates hyperparameter searches for simulation: loss curves, and the iterations that each trial runs."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_hpo_adapters.bracket import phase_sizes
from eunomia_hpo_adapters.successive_halving import equal_budget_rungs, geometric_rungs

Rungs = Literal["geometric", "equal_budget"]


def draw_curves(draws: np.random.Generator, trials: int) -> Reals:
    """Draw ``[trial, (asymptote, amplitude, exponent)]`` of falling losses ``a + b (k + 1)^-c`` (assumed ranges).

    The asymptotes are between 0.1 (good trials) and 1 (bad ones); all losses start between 1.1 and 4, and fall at
    different rates.
    """
    uniform = draws.random((trials, 3))
    lowest = np.array([0.1, 1.0, 0.3])
    highest = np.array([1.0, 3.0, 0.9])
    curves: Reals = lowest + uniform * (highest - lowest)
    return curves


def losses(curves: Reals, iteration: int) -> Reals:
    """Return [trial] loss after a number of iterations, from ``curves`` as ``draw_curves`` returns them."""
    asymptote, amplitude, exponent = curves.T
    loss: Reals = asymptote + amplitude * (iteration + 1.0) ** -exponent
    return loss


def halving_rungs(trials: int, iterations: int, reduction_factor: int, rungs: Rungs) -> tuple[list[int], list[int]]:
    """Return the number of running trials in each phase, and the iteration at which each phase ends."""
    sizes = phase_sizes(trials, reduction_factor)
    place = equal_budget_rungs if rungs == "equal_budget" else geometric_rungs
    return sizes, place(iterations, len(sizes), reduction_factor)


def halving_iterations(curves: Reals, iterations: int, reduction_factor: int, rungs: Rungs) -> Ints:
    """Return [trial] the iterations that each trial runs under successive halving, given all loss curves."""
    sizes, ends = halving_rungs(len(curves), iterations, reduction_factor, rungs)
    done = np.zeros(len(curves), dtype=np.int64)
    members: Sequence[int] = range(len(curves))
    for size, end in zip(sizes, ends, strict=True):
        loss = losses(curves, done[members[0]] if members else 0)
        members = sorted(members, key=lambda trial: (loss[trial], trial))[:size]
        done[list(members)] = end
    return done
