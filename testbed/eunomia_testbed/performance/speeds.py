"""What every performance model answers: iterations a second of a model in a setting."""

from typing import Protocol

from eunomia.shapes import value
from eunomia.units import Locality


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
    """Another model that shares its GPUs; None: alone."""


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
