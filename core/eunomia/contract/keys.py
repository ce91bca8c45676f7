"""Keys by which jobs and apps are ordered: linear functions of time, computed row by row."""

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from eunomia.contract.menus import Menus
from eunomia.model.workload import Apps, Jobs
from eunomia.units import Seconds


class Linear(NamedTuple):
    """The key of one row: ``at_zero + slope * now`` at ``now`` seconds since the start; lower keys are served first."""

    at_zero: float
    """The key at time 0, in a unit that the order chooses; NaN: unknown, so the row is served last."""
    slope: float = 0.0
    """Change of the key per second; the key of a waiting job is constant."""
    until: float = math.inf
    """Time in seconds since the start until which the line is valid; inf: until the row changes."""


UNKNOWN: Final = Linear(math.inf)
"""The key of a row that is served last."""


class LinearKeyError(Exception):
    """The key function of an order failed, or did not return one key per row, which is a fault of the valuation.

    The allocation calls that function; this error tells the arbiter that the valuation's plugin caused the fault.
    """


class Facts(NamedTuple):
    """The data that a key function may read, cell by cell, as plain numbers, which is cheaper than indexing arrays."""

    now: Seconds
    jobs: Jobs
    """The columns of ``snapshot.jobs``: ``facts.jobs.arrived[job]`` is a float."""
    apps: Apps
    """The columns of ``snapshot.apps``."""
    menus: Menus
    largest: Callable[[int], tuple[int, float]]
    """``largest(job)`` returns the largest size on the job's menu, in GPUs, and its iterations per second at that size
    within one island: 0 and NaN if the menu is empty, NaN if the rate is not known."""
    smallest: Callable[[int], tuple[int, float]]
    """As ``largest``, for the smallest size on the menu."""
    gpu_seconds: Callable[[int], tuple[float, float]]
    """``gpu_seconds(job)`` returns the GPU-seconds that the job has received, as a linear function of time: the value
    at time 0 and the increase per second."""
    seconds: Callable[[int], tuple[float, float]]
    """As ``gpu_seconds``, for the seconds during which the job has run."""


Line = tuple[float, float, float]
"""A ``Linear``, or its three numbers as a plain tuple, which is cheaper to build."""
Key = Callable[[Facts, int], Line]
"""Computes the key of one row; the key may depend only on that row, its menu and the time."""


class Sizes:
    """The largest and the smallest sizes on the menus of jobs, as plain numbers.

    Args:
        menus: the menus of this round; with ``one_size``, later in-place changes of their arrays take effect.
    """

    __slots__ = ("_by_job", "_curve", "_gpus", "_rate", "_start", "menus")

    def __init__(self, menus: Menus) -> None:
        self.menus = menus
        self._curve: Any = None

    def _read(self) -> Any:
        """Read the menus when a key first needs a size, and return the curve of each job."""
        menus, points = self.menus, self.menus.points
        self._by_job = not menus.one_size or points.gpus.size == 0
        columns: tuple[Any, ...] = (points.gpus, points.rate, points.start, menus.curve)
        if self._by_job:
            rows = np.arange(menus.curve.size, dtype=np.int32)
            columns = (menus.span(rows)[1], menus.full_rate(rows), *columns[2:])
        cells: list[Any] = [memoryview(column) for column in columns]
        self._gpus, self._rate, self._start, self._curve = cells
        return self._curve

    def largest(self, job: int) -> tuple[int, float]:
        """Return the largest size of a job and its rate; see ``Facts.largest``."""
        curve = (self._curve or self._read())[job]
        if curve < 0:
            return 0, math.nan
        at = job if self._by_job else self._start[curve]
        return self._gpus[at], self._rate[at]

    def smallest(self, job: int) -> tuple[int, float]:
        """Return the smallest size of a job and its rate; see ``Facts.smallest``."""
        largest = self.largest(job)
        if not self._by_job or largest[0] == 0:
            return largest
        least = int(self.menus.sizes(job)[0])
        return least, self.menus.rate(job, least)


def line_of(key: Key, facts: Facts, row: int) -> Line:
    """Return the key of a row, or ``UNKNOWN`` if the key is NaN at the time ``facts.now``.

    Raises:
        LinearKeyError: the key function fails, or does not return three numbers.
    """
    try:
        line: object = key(facts, row)
        if type(line) is tuple or type(line) is Linear:
            at_zero, slope, _ = line
            now = at_zero + slope * facts.now
            return line if now == now else UNKNOWN
    except LinearKeyError:
        raise
    except Exception as error:
        raise LinearKeyError(f"{type(error).__name__}: {error}") from error
    raise LinearKeyError(f"Linear expected, {type(line).__name__} returned")
