"""What every performance model answers: iterations a second of a model in a setting."""

from collections.abc import Iterable
from typing import Protocol

from eunomia.shapes import value
from eunomia.units import Locality
from eunomia_testbed.workload.adaptation import split_model


@value
class Setting:
    """How a job runs: what its speed depends on."""

    gpus: int
    gpu_type: str
    locality: Locality
    machines: int = 1
    batch_size: float | None = None
    """Global batch size; None: the model's own."""
    cpus_per_gpu: float | None = None
    """None: the machine's share in proportion to GPUs."""
    memory_gib_per_gpu: float | None = None
    beside: str | None = None
    """Another model that shares its GPUs; None: alone. Its gang is as large."""


def part_of_gpu(setting: Setting) -> float:
    """What a neighbour leaves of a GPU where no pairs were measured: they run in turns, each half the time."""
    return 1.0 if setting.beside is None else 0.5


class PerformanceModel(Protocol):
    """Knows models by name."""

    @property
    def models(self) -> tuple[str, ...]:
        """The models that it knows."""
        ...

    def rate(self, model: str, setting: Setting) -> float:
        """Iterations a second of the whole job; 0: it does not run so.

        Raises:
            InputError: a model or a GPU type that it does not know.
        """
        ...


def known_of(speeds: PerformanceModel, names: Iterable[str]) -> frozenset[str]:
    """Return those names that a performance model has speeds of, as they stand or without their batch size."""
    known = frozenset(speeds.models)
    return frozenset(name for name in names if name in known or split_model(name)[0] in known)
