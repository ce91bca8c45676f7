"""The protocol of performance models: iterations per second of a model in a setting."""

from typing import Protocol, runtime_checkable

from eunomia.model.shapes import value
from eunomia.units import Locality, Reals


@value
class Setting:
    """The conditions of a job on which its speed depends."""

    gpus: int
    gpu_type: str
    locality: Locality
    machines: int = 1
    batch_size: float | None = None
    """Global batch size; None: the model's own."""
    cpus_per_gpu: float | None = None
    """None, for CPUs as for memory: the machine's share in proportion to GPUs."""
    memory_gib_per_gpu: float | None = None
    beside: str | None = None
    """Another model on the same GPUs, with a gang as large; None: the job is alone."""


def part_of_gpu(setting: Setting) -> float:
    """Return the share of a GPU if pairs are not measured: two jobs alternate, with half the time each."""
    return 1.0 if setting.beside is None else 0.5


class PerformanceModel(Protocol):
    """Speeds of models by name."""

    @property
    def models(self) -> tuple[str, ...]:
        """Return the known models."""
        ...

    def rate(self, model: str, setting: Setting) -> float:
        """Return iterations per second of the whole job; 0: the job cannot run in this setting.

        Raises:
            InputError: an unknown model or GPU type.
        """
        ...


@runtime_checkable
class ByAmounts(Protocol):
    """A performance model with rates by CPUs and memory."""

    def amounts(self, model: str) -> tuple[Reals, Reals]:
        """Return the CPUs per GPU and the GiB per GPU of a model's measurements, each ascending.

        Raises:
            InputError: an unknown model.
        """
        ...
