"""Known rates of each kind of job, which are kept after the measured job has ended."""

import math
from typing import Final

from eunomia.model.shapes import value
from eunomia.units import Basis, Locality

MOST_KINDS: Final = 1000
"""Maximum number of kinds with rates; beyond it, the least recently changed kind is dropped."""
MOST_POINTS: Final = 1000
"""Maximum number of rates per kind; beyond it, the oldest rate is dropped."""


@value
class KnownRate:
    """A rate of a kind of job in iterations per second, at a size, GPU type and locality."""

    gpus: int
    gpu_type: str
    locality: Locality
    rate: float
    """Iterations per second; 0: jobs of the kind cannot run at this setting."""
    known: Basis = Basis.MEASURED
    """Source of the rate: measured, declared, or estimated (``ASSUMED``)."""
    batch_size: float = math.nan
    """Global batch size; NaN: the rate is valid at any."""
    cpus: float = math.nan
    """CPUs of the job for all its GPUs together; NaN: not known."""
    memory_gib: float = math.nan
    """Memory of the job in GiB for all its GPUs together; NaN: not known."""
    machine: str = ""
    """Name of the machine on which the rate was measured; empty: several machines, or not known."""
    date: str = ""
    """Date of the measurement in UTC, such as "2026-11-23"; empty: not known."""

    def where(self) -> tuple[object, ...]:
        """Return the setting of the rate, which is its key: a new rate replaces an older one at the same setting."""
        amounts = (self.batch_size, self.cpus, self.memory_gib)
        return (self.gpus, self.gpu_type, self.locality, *(None if math.isnan(item) else item for item in amounts))


def with_rate(rates: tuple[KnownRate, ...], new: KnownRate) -> tuple[KnownRate, ...]:
    """Return the rates with a new one, which replaces an older rate at the same setting."""
    where = new.where()
    return (*(rate for rate in rates if rate.where() != where), new)[-MOST_POINTS:]
