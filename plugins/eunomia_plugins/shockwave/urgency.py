"""Budgets by urgency.

Of short jobs, jobs on the critical path, jobs close to the time of a fair share, and running jobs.
"""

import numpy as np

from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.shockwave.outlook import Outlook

CRITICAL, LATE, STAYS = 0.5, 2.0, 0.1
"""Weights of the critical path, of the time until ρ is 1 and of running already, relative to that of being short."""
POWER = 4.0
"""Exponent of the critical path and of the time until ρ is 1: both terms rise only near the end."""


def urgency(seen: Outlook, until: Reals, gpus: Ints, running: Bools, capacity: int) -> Reals:
    """Return by job the value of one of its GPU-rounds, from 0 to 3.6; a job of unknown length counts only if it runs.

    Args:
        seen: run times.
        until: by job, seconds until ρ is 1.
        gpus: by job, its gang.
        running: by job, whether it holds GPUs.
        capacity: GPUs.
    """
    left = np.nan_to_num(seen.left, nan=0.0)
    mean = float(left.mean()) if left.size else 0.0
    # The least time in which all jobs can finish: the longest job alone, or all work on all GPUs.
    path = max(float(left.max(initial=0.0)), float(left @ gpus) / max(1, capacity), _LITTLE)
    late = np.where(until > left, left / np.maximum(until, _LITTLE), 1.0)
    known = mean / np.maximum(mean + left, _LITTLE) + CRITICAL * (left / path) ** POWER + LATE * late**POWER
    found: Reals = np.where(np.isnan(seen.left), 0.0, known) + STAYS * running
    return found


_LITTLE = 1e-9
