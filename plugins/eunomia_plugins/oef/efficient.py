"""Efficiency-only OEF (equation 4): each type goes to the fastest claim on it; equal claims divide it by weight."""

import numpy as np

from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.groups import Groups


def solve_efficient(groups: Groups) -> Answer:
    """Solve equation (4): maximise the sum of throughputs, without fairness constraints."""
    best = groups.speedup.max(axis=0)
    fastest = (groups.speedup == best) & (best > 0.0)
    part = fastest * groups.weight[:, None]
    total = part.sum(axis=0)
    gpus = groups.gpus * part / np.where(total > 0.0, total, 1.0)
    objective = float((groups.speedup * gpus).sum())
    return Answer(gpus=gpus, objective=objective, bound=objective, path="fastest claim of each type")
