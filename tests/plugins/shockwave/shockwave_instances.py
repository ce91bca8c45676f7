"""Random small programmes: mixed gangs, regimes that change within the window, and long jobs that set H."""

import numpy as np

from eunomia_plugins.shockwave.instance import Instance, logarithmic
from eunomia_plugins.shockwave.outlook import Outlook

ROUND = 120.0


def drawn(seed: int) -> Instance:
    """One random instance; its seed decides whether the longest job sets H, and how smooth the logarithm is."""
    luck = np.random.default_rng(seed)
    jobs, rounds = int(luck.integers(3, 8)), int(luck.integers(3, 7))
    seen = outlook_of(luck, jobs, rounds)
    points = ((0.0, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), tuple(np.linspace(0.0, 1.0, 40).tolist()))[seed % 3]
    return Instance(
        gpus=luck.choice([1, 1, 1, 2, 2, 4], jobs),
        value=logarithmic(seen.progress_after(rounds, ROUND), luck.lognormal(0.0, 0.7, jobs), points, 1e-6),
        left=seen.left,
        total=seen.total,
        capacity=int(luck.choice([4, 4, 5, 8])),
        seconds=ROUND,
        regularizer=float(luck.choice([0.0, 1e-3, 0.3, 3.0, 30.0])),
        by_gpus=bool(luck.integers(0, 2)),
    )


def outlook_of(luck: np.random.Generator, jobs: int, rounds: int) -> Outlook:
    """Jobs of up to three regimes, of which half change within the window; one in three is much longer."""
    seconds = luck.uniform(0.2, 0.8 * rounds, (jobs, 3)) * ROUND * (luck.random((jobs, 3)) < (1.0, 0.5, 0.5))
    seconds[luck.random(jobs) < 0.33] *= 4.0
    rate = luck.uniform(0.5, 4.0, (jobs, 3))
    return Outlook(
        progress=luck.uniform(0.0, 0.9, jobs) * (luck.random(jobs) < 0.7),
        iterations=seconds * rate,
        seconds=seconds,
        attained=luck.uniform(0.0, 1000.0, jobs),
    )
