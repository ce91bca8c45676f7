"""The searches with recorded trials: the demo's three models, over spaces wide enough to contain bad trials."""

from collections.abc import Mapping

from eunomia.model.shapes import value
from eunomia_appmaster.app.space import Categorical, Float, Int, Parameters, Space, random_point

MAX_ITERATIONS = 900
"""Optimizer steps of a trial: 60 epochs, and so 60 points."""
TRIALS = 20
SEED = 7

_RATE = Float(low=1e-4, high=2.0, log=True)
_MOMENTUM = Categorical(choices=(0.0, 0.9))


@value
class RecordedSearch:
    """A model of the demo, and the space from which its trials are drawn."""

    module: str
    """The training script's module, run unchanged."""
    space: Space


SEARCHES: Mapping[str, RecordedSearch] = {
    "mlp": RecordedSearch(
        module="eunomia_testbed.workloads.image.mlp",
        space={
            "lr": _RATE,
            "momentum": _MOMENTUM,
            "dropout": Float(low=0.0, high=0.7),
            "width": Int(low=16, high=256, step=16),
        },
    ),
    "cnn": RecordedSearch(
        module="eunomia_testbed.workloads.image.cnn",
        space={"lr": _RATE, "momentum": _MOMENTUM, "channels": Int(low=2, high=12)},
    ),
    "transformer": RecordedSearch(
        module="eunomia_testbed.workloads.image.vit",
        space={"lr": Float(low=2e-5, high=0.1, log=True), "width": Int(low=16, high=64, step=16)},
    ),
}


def search_seed(model: str, seed: int = SEED) -> int:
    """Return the seed of a model's search; models have distinct seeds, so that their trials draw different values."""
    return seed + 1000 * list(SEARCHES).index(model)


def parameters(model: str, trial: int, seed: int = SEED) -> Parameters:
    """Draw a trial's parameters; floats are rounded to four digits, so that recorded values equal those of the run."""
    drawn = random_point(SEARCHES[model].space, search_seed(model, seed), trial)
    return {name: float(f"{given:.4g}") if isinstance(given, float) else given for name, given in drawn.items()}
