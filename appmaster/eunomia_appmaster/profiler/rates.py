"""Iteration times from logs, and from them the slowdown S by locality (Themis §4.3.1, footnote 3)."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

import numpy as np
from numpy.typing import NDArray

from eunomia.errors import InputError
from eunomia.model.forecasts import ASSUMED_SLOWDOWN
from eunomia.units import Locality
from eunomia_appmaster.profiler.log_folder import LogFolder, Series

STEP_SECONDS_TAG = "eunomia/step_seconds"
"""Tag under which the training helper logs seconds per step, measured with a synchronised device."""

MOST_AHEAD_SECONDS = 60.0
"""Largest clock offset from the arbiter, in seconds, at which time stamps in logs are still used for rates."""

Sizes = Mapping[int, tuple[int, Locality]]
"""Number of GPUs and locality by incarnation."""


class RateBasis(StrEnum):
    """The kind of data that an iteration time is derived from."""

    STEP_SECONDS = "step_seconds"
    """Logged step times of a synchronised device."""
    WALL_TIME = "wall_time"
    """Differences of time stamps between points of one tag: less accurate, since CUDA is asynchronous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Median seconds per iteration on ``gpus`` GPUs at one locality, from ``samples`` samples."""

    gpus: int
    locality: Locality
    seconds_per_iteration: float
    samples: int
    basis: RateBasis

    @property
    def iterations_per_second(self) -> float:
        """The rate in iterations per second."""
        return 1.0 / self.seconds_per_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """Rules for ignoring samples of an incarnation.

    warm_up: number of first samples to skip (filling caches, rebuilding buckets); pause_factor: a sample above this
    multiple of the median is a pause (evaluation, checkpoint, a suspended process); least: fewest samples of a rate.
    """

    warm_up: int = 2
    pause_factor: float = 5.0
    least: int = 3

    def __post_init__(self) -> None:
        if self.warm_up < 0 or self.least < 1 or not self.pause_factor > 1:
            rule = "a trim must have warm_up of at least 0, pause_factor above 1 and least of at least 1"
            raise InputError(rule, value=f"{self.warm_up}, {self.pause_factor} and {self.least}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Measured S(G) of ``gpus`` GPUs at one locality, at least 1."""

    gpus: int
    locality: Locality
    slowdown: float


def measure_rates(
    logs: LogFolder,
    sizes: Sizes,
    *,
    tag: str | None = None,
    trim: Trim | None = None,
    since: float = -math.inf,
    ahead: Mapping[int, float] | None = None,
) -> list[Rate]:
    """Return the iteration time for each GPU count and locality of the job's incarnations, sorted by both.

    Logged step seconds are preferred. If a size has none, time stamps of one tag are used: ``tag``, else the one with
    the most points in the incarnation. Points that a newer writer superseded count as well, since their steps took
    time.

    Args:
        logs: the job's logs, polled by the caller.
        sizes: size by incarnation; incarnations without an entry are ignored.
        tag: the tag whose time stamps are used; it need not be logged at every step.
        trim: rules for ignoring samples; None: ``Trim()``.
        since: Unix seconds; earlier samples, such as those at another batch size, are ignored.
        ahead: by incarnation, the seconds by which its clock is ahead of the clock of ``since``; beyond
            ``MOST_AHEAD_SECONDS``, time stamps are not used, since such a clock may be corrected at any time.
    """
    trim, ahead = trim or Trim(), ahead or {}
    samples: dict[tuple[tuple[int, Locality], RateBasis], list[NDArray[np.float64]]] = defaultdict(list)
    for writer in logs.writers():
        if writer in sizes:
            off = ahead.get(writer, 0.0)
            for basis, found in _samples(logs, writer, tag, since + off).items():
                if basis is RateBasis.WALL_TIME and is_too_far_off(off):
                    continue
                samples[sizes[writer], basis].append(_trimmed(found, trim))
    rates: dict[tuple[int, Locality], Rate] = {}
    for (gpus, locality), basis in sorted(samples):  # step_seconds come before wall_time
        pooled = np.concatenate(samples[(gpus, locality), basis])
        if len(pooled) >= trim.least and (gpus, locality) not in rates:
            seconds, count = float(np.median(pooled)), len(pooled)
            rate = Rate(gpus=gpus, locality=locality, seconds_per_iteration=seconds, samples=count, basis=basis)
            rates[gpus, locality] = rate
    return list(rates.values())


def is_too_far_off(ahead: float) -> bool:
    """Return whether a clock is too far from the arbiter's to derive step times from its time stamps."""
    return abs(ahead) > MOST_AHEAD_SECONDS


def slowdowns(rates: Iterable[Rate], *, relative_to_machine: bool = True) -> list[Slowdown]:
    """Return S(G) = iter_time(G) / reference, at least 1, for each rate with a reference (Themis §4.3.1, footnote 3).

    Args:
        rates: the rates of one job, at most one per size and locality.
        relative_to_machine: if the same GPU count was measured within a machine, that time is the reference: S is then
            the cost of distance alone, without the cost of the size. Otherwise, or if False, the reference is
            iter_time_serial / |G|, as in Equation 1.
    """
    known = {(rate.gpus, rate.locality): rate.seconds_per_iteration for rate in rates}
    serial = min((seconds for (gpus, _), seconds in known.items() if gpus == 1), default=None)
    result = []
    for (gpus, locality), seconds in sorted(known.items()):
        reference = None if serial is None else serial / gpus
        local = [known[gpus, near] for near in (Locality.MACHINE, Locality.ISLAND) if (gpus, near) in known]
        if relative_to_machine and local:
            reference = local[0]
        if reference is not None:
            result.append(Slowdown(gpus=gpus, locality=locality, slowdown=max(1.0, seconds / reference)))
    return result


def slowdown_by_locality(
    rates: Iterable[Rate],
    *,
    relative_to_machine: bool = True,
    assumed: tuple[float, float, float, float] = ASSUMED_SLOWDOWN,
) -> tuple[float, float, float, float] | None:
    """Return S by locality (island, machine, rack, cluster): the median over the sizes measured there.

    A locality without a measurement gets the value in ``assumed``, or that of a nearer locality if this is greater;
    None if no locality was measured.
    """
    measured: dict[Locality, list[float]] = defaultdict(list)
    for one in slowdowns(rates, relative_to_machine=relative_to_machine):
        measured[one.locality].append(one.slowdown)
    if not measured:
        return None
    result: list[float] = []
    for locality in Locality:
        found = measured.get(locality)
        result.append(median(found) if found else max(assumed[locality], *result, 1.0))
    return result[0], result[1], result[2], result[3]


def _samples(logs: LogFolder, writer: int, tag: str | None, since: float) -> dict[RateBasis, NDArray[np.float64]]:
    """Return the seconds per iteration that one incarnation logged, by kind of data, in the order written."""
    tag = _busiest_tag(logs, writer) if tag is None else tag
    steps = logs.as_written(STEP_SECONDS_TAG, writer=writer)
    found = {RateBasis.STEP_SECONDS: steps.value[steps.wall_time >= since]}
    if tag is not None:
        found[RateBasis.WALL_TIME] = _seconds_between(logs.as_written(tag, writer=writer), since)
    return found


def _busiest_tag(logs: LogFolder, writer: int) -> str | None:
    counts = {tag: len(logs.as_written(tag, writer=writer)) for tag in logs.tags() if tag != STEP_SECONDS_TAG}
    return max(counts, key=lambda tag: counts[tag], default=None)


def _seconds_between(series: Series, since: float) -> NDArray[np.float64]:
    late = series.wall_time >= since
    steps = np.diff(series.step[late])
    return np.asarray(np.diff(series.wall_time[late])[steps > 0] / steps[steps > 0], dtype=np.float64)


def _trimmed(samples: NDArray[np.float64], trim: Trim) -> NDArray[np.float64]:
    rest = samples[trim.warm_up :]
    rest = rest[np.isfinite(rest) & (rest > 0)]
    return rest[rest <= trim.pause_factor * np.median(rest)] if len(rest) else rest
