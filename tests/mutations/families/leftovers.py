"""What the refiner ``leftovers`` reads, on a cluster with more GPUs than its jobs ask for."""

from collections.abc import Mapping
from functools import lru_cache

from eunomia import Stage
from eunomia.testing.builders import World


@lru_cache(maxsize=1)
def roomy_world() -> World:
    """Twelve GPUs and four jobs that could use them all, whose measured rates gain more or less from each."""
    world = World("3x4 V100", seed=5)
    for number, gain in enumerate((0.9, 0.4, 0.7, 0.2)):
        job = f"app{number}/1"
        world.job(job, gpus=(1 + number // 2, 8), arrived=float(number), iterations=900.0, seconds_per_iteration=1.0)
        for gpus in range(1, 9):
            world.measures(job, gpus, 1.0 + gain * (gpus - 1) - 0.01 * gpus * gpus)
    return world


WORLD = roomy_world
READS: Mapping[tuple[str, Stage], set[str]] = {
    # Gains are relative, so a curve that is slower at all its sizes changes nothing.
    ("leftovers", Stage.REFINE): {"sizes", "order", "amounts"},
}
COMPANIONS: Mapping[str, Mapping[str, object]] = {
    "leftovers": {
        "stages.elasticity": "range",
        "stages.valuation": "srtf",
        "stages.refiners": ["leftovers"],
        "plugins.ordered.size": "smallest",
    },
}
