"""The rate of a job by memory: a cache holds part of the data set, and storage serves the rest (Synergy §3.1)."""

import math
from typing import Annotated

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from eunomia import InputError
from eunomia.units import Reals, parse_memory


def _memory(given: object) -> object:
    return _read(given, 'must be an amount of memory above 0 with a unit, such as "150GB"', "")


def _bandwidth(given: object) -> object:
    return _read(given, 'must be a bandwidth above 0 with a unit, such as "200MB/s"', "/s")


def _read(given: object, rule: str, ending: str) -> object:
    """Parse an amount with a unit into GiB."""
    if not isinstance(given, str) or not given.endswith(ending):
        raise ValueError(rule)
    try:
        return parse_memory(given.removesuffix(ending), name="it")
    except InputError as error:
        raise ValueError(rule) from error


_Positive = Field(gt=0.0, allow_inf_nan=False)
Memory = Annotated[
    float, BeforeValidator(_memory), PlainSerializer(lambda gib: f"{gib!r}GiB", return_type=str), _Positive
]
"""An amount of memory in GiB, given as text such as ``"150GB"``."""
Bandwidth = Annotated[
    float, BeforeValidator(_bandwidth), PlainSerializer(lambda gib: f"{gib!r}GiB/s", return_type=str), _Positive
]
"""A bandwidth in GiB per second, given as text such as ``"200MB/s"``."""


class DataSet(BaseModel):
    """The data set that a job of a kind reads once per epoch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: Memory
    """Size of the whole data set in GiB."""
    samples: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    """Number of samples of the data set."""
    process: Memory = Field(default="20GB", validate_default=True)
    """Memory of a job's processes per GPU in GiB, which caches no data."""

    def cached(self, memory_gib: Reals, gpus: int) -> Reals:
        """Return the fraction of the data set that a cache such as MinIO's holds in each of these amounts of memory."""
        part: Reals = np.clip((memory_gib - gpus * self.process) / self.size, 0.0, 1.0)
        return part

    def full(self, gpus: int) -> float:
        """Return the GiB with which the whole data set is cached."""
        return gpus * self.process + self.size

    def bound(self, memory_gib: Reals, gpus: int, batch_size: float, bandwidth_gib: float) -> Reals:
        """Return the iterations per second that storage allows for uncached data; inf if all data are cached.

        Args:
            memory_gib: amounts of memory for all GPUs together.
            gpus: number of GPUs of the job.
            batch_size: samples per iteration; NaN: not known, so storage counts as fast enough.
            bandwidth_gib: read bandwidth of the job from storage, in GiB per second.
        """
        if math.isnan(batch_size):
            return np.full(memory_gib.shape, np.inf)
        missing = (1.0 - self.cached(memory_gib, gpus)) * batch_size * self.size / self.samples
        with np.errstate(divide="ignore"):
            return np.asarray(bandwidth_gib / missing, float)
