"""Speeds as in Themis's simulator: linear in GPUs, divided by a slowdown that depends on the gang's locality.

Source: Themis (NSDI'20), §4.3.1 and footnote 3: S = 1 on one machine, 1.1 across machines, 1.3 across racks.
"""

from collections.abc import Mapping
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import Locality
from eunomia_testbed.performance.reading import plain, unknown
from eunomia_testbed.performance.speeds import Setting, part_of_gpu

NETWORK_INTENSIVE: Final = (1.0, 1.0, 1.1, 1.3)
COMPUTE_INTENSIVE: Final = (1.0, 1.0, 1.0, 1.0)


@value
class DeclaredModel:
    """The declared speed of one model."""

    seconds_per_iteration: float = 1.0
    """Seconds per iteration on one GPU."""
    slowdown: tuple[float, float, float, float] = COMPUTE_INTENSIVE
    """Slowdown S by locality: within an island, a machine, a rack, and the cluster; each at least 1."""
    batch_size: float | None = None
    """The global batch size to which ``seconds_per_iteration`` applies; None: every batch takes the same time."""
    speed: Mapping[str, float] | None = None
    """Speed by GPU type, relative to the type of ``seconds_per_iteration``; None: all types are equally fast."""


class DeclaredSpeeds:
    """Speeds linear in GPUs, with a slowdown by locality; CPUs and memory have no effect; two jobs halve a GPU."""

    def __init__(self, models: Mapping[str, DeclaredModel], *, place: str = "declared speeds") -> None:
        for name, model in models.items():
            _check(name, model, place)
        self._models = dict(models)
        self._speed = {
            name: {plain(kind): speed for kind, speed in model.speed.items()}
            for name, model in models.items()
            if model.speed is not None
        }
        self.place = place

    @property
    def models(self) -> tuple[str, ...]:
        """Return the declared models."""
        return tuple(self._models)

    def knows(self, model: str, batch_size: float | None) -> bool:
        """Return whether a model is declared; any batch size is known, since time is constant or proportional to it."""
        return model in self._models

    def ignores_type(self, model: str) -> bool:
        """Return whether a model is declared without speeds by GPU type."""
        return model in self._models and model not in self._speed

    def rate(self, model: str, setting: Setting) -> float:
        """Return iterations per second: GPUs / (seconds on one GPU x S).

        Raises:
            InputError: the model or the GPU type has no declared speed.
        """
        known = self._models.get(model)
        if known is None:
            raise unknown("model", model, self.models, self.place)
        speed = self._of_type(model, setting.gpu_type)
        larger = 1.0
        if known.batch_size is not None and setting.batch_size is not None:
            larger = setting.batch_size / known.batch_size
        slowdown = known.slowdown[setting.locality] if setting.gpus > 1 else 1.0
        return part_of_gpu(setting) * setting.gpus * speed / (known.seconds_per_iteration * larger * slowdown)

    def _of_type(self, model: str, gpu_type: str) -> float:
        by_type = self._speed.get(model)
        if by_type is None:
            return 1.0
        if plain(gpu_type) not in by_type:
            raise unknown("GPU type", gpu_type, sorted(self._models[model].speed or ()), self.place)
        return by_type[plain(gpu_type)]


def _check(name: str, model: DeclaredModel, place: str) -> None:
    where = f"{place}, {name}"
    if not 0.0 < model.seconds_per_iteration < float("inf"):
        raise InputError("seconds_per_iteration must be positive", value=f"{model.seconds_per_iteration}", place=where)
    if len(model.slowdown) != len(Locality) or not all(1.0 <= factor < float("inf") for factor in model.slowdown):
        raise InputError("slowdown must be four factors of at least 1", value=f"{model.slowdown}", place=where)
    if model.speed is not None and not all(0.0 < factor < float("inf") for factor in model.speed.values()):
        raise InputError("speed must be positive for every GPU type", value=f"{dict(model.speed)}", place=where)
