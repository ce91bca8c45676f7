"""Known rates of a kind of job; they outlive the measured job."""

import math
from typing import Final

from eunomia.model.shapes import value
from eunomia.units import Basis, Locality

MOST_KINDS: Final = 1000
"""Most kinds that the arbiter keeps rates of; beyond it, the kind that changed longest ago is dropped."""
MOST_POINTS: Final = 1000
"""Most rates that the arbiter keeps of a kind; beyond it, the oldest is dropped."""


@value
class KnownRate:
    """A rate of a kind of job: iterations a second at a size, GPU type and locality."""

    gpus: int
    gpu_type: str
    locality: Locality
    rate: float
    """0: a job of the kind does not run there."""
    known: Basis = Basis.MEASURED
    """How the rate is known: measured, declared, or estimated (``ASSUMED``)."""
    batch_size: float = math.nan
    """Global batch size; NaN: the rate holds at any."""
    cpus: float = math.nan
    """CPUs of the job for all its GPUs together; NaN: not known."""
    memory_gib: float = math.nan
    """Memory in GiB for the same GPUs; NaN as for the CPUs."""
    machine: str = ""
    """The machine on which the rate was measured; empty: several machines, or not known."""
    date: str = ""
    """The day of the measurement in UTC, as in "2026-11-23"; empty: not known."""

    def where(self) -> tuple[object, ...]:
        """Return the setting of the rate: two rates of one setting replace each other."""
        amounts = (self.batch_size, self.cpus, self.memory_gib)
        return (self.gpus, self.gpu_type, self.locality, *(None if math.isnan(item) else item for item in amounts))


def with_rate(rates: tuple[KnownRate, ...], new: KnownRate) -> tuple[KnownRate, ...]:
    """Return the rates with a new one in place of the older one at the same setting."""
    where = new.where()
    return (*(rate for rate in rates if rate.where() != where), new)[-MOST_POINTS:]
