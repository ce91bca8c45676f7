"""The protocol of performance models: iterations per second of a model in a setting."""

from typing import Protocol, runtime_checkable

from eunomia.model.shapes import value
from eunomia.units import Locality, Reals


@value
class Setting:
    """The conditions on which a job's speed depends."""

    gpus: int
    gpu_type: str
    locality: Locality
    machines: int = 1
    batch_size: float | None = None
    """Global batch size; None: the model's own."""
    cpus_per_gpu: float | None = None
    """CPUs per GPU; None, as for memory: the machine's share in proportion to its GPUs."""
    memory_gib_per_gpu: float | None = None
    beside: str | None = None
    """Model of another job of the same gang size on the same GPUs; None: the job is alone."""


def part_of_gpu(setting: Setting) -> float:
    """Return the fraction of a GPU that a job gets if pairs are not measured: 0.5 beside another job, otherwise 1."""
    return 1.0 if setting.beside is None else 0.5


class PerformanceModel(Protocol):
    """A performance model: the speeds of models by name."""

    @property
    def models(self) -> tuple[str, ...]:
        """Return the known models."""
        ...

    def rate(self, model: str, setting: Setting) -> float:
        """Return iterations per second of the whole job; 0: the job cannot run in this setting.

        Raises:
            InputError: the model or GPU type is unknown.
        """
        ...


@runtime_checkable
class ByAmounts(Protocol):
    """A performance model whose rates depend on CPUs and memory."""

    def amounts(self, model: str) -> tuple[Reals, Reals]:
        """Return the CPUs per GPU and the GiB per GPU at which a model is measured, each ascending.

        Raises:
            InputError: the model is unknown.
        """
        ...
