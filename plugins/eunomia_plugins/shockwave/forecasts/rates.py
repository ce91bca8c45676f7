"""Rates of jobs at batch sizes to which they may adapt: known ones, else derived from the gain of larger batches."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eunomia import KnownRate, Snapshot
from eunomia.contract.snapshot import Measured

Point = Measured | KnownRate
Gains = dict[tuple[int, str, int], dict[float, float]]
"""Rates by batch size, for each number of GPUs, GPU type and locality."""


class RateAt(NamedTuple):
    """A job's rate at a batch size."""

    rate: float
    """Iterations per second."""
    known: bool
    """Whether the rate was measured for the job or its kind; if not, it follows from the gain of larger batches."""


class KnownRates:
    """The rates by batch size known in a snapshot, for each job, its kind, and over all kinds.

    Args:
        snapshot: the current state, with measured rates and known rates of kinds of jobs.
        gain: see ``ShockwaveForecastOptions.gain``.
    """

    def __init__(self, snapshot: Snapshot, gain: float) -> None:
        self._snapshot, self._gain = snapshot, gain
        self._shared: float | None = None

    def points(self, job: int) -> list[Point]:
        """Return the rates of the job itself, followed by those of its kind."""
        seen, jobs = self._snapshot, self._snapshot.jobs
        own = (*seen.measured.get(job, ()), *seen.measured_at_others.get(job, ()))
        return [*own, *seen.profiles.get(int(jobs.job_kind[job]), ())]

    def at(self, job: int, batches: Sequence[float], present: float, rate: float) -> list[RateAt]:
        """Return the job's rate at each of these batch sizes, on its maximum number of GPUs.

        Args:
            job: the job's row.
            batches: batch sizes.
            present: the job's present batch size.
            rate: iterations per second at the present batch size.
        """
        if not batches:
            return []
        points, most = self.points(job), int(self._snapshot.jobs.most[job])
        gain: float | None = None
        found: list[RateAt] = []
        for batch in batches:
            exact = [point for point in points if point.batch_size == batch and point.gpus == most and point.rate > 0.0]
            if exact:
                found.append(RateAt(min(exact, key=lambda point: point.locality).rate, known=True))
                continue
            if gain is None:
                gain = exponent(points)
                gain = self._over_all() if math.isnan(gain) else gain
            found.append(RateAt(rate * (batch / present) ** (gain - 1.0), known=False))
        return found

    def now(self, job: int) -> float:
        """Return iterations per second at the present batch size of a job not measured there; NaN: not known.

        The job's own rates take precedence over those of its kind; among them, the rate at the nearest batch size is
        scaled in proportion to GPUs.
        """
        jobs = self._snapshot.jobs
        batch, most = float(jobs.batch_size[job]), int(jobs.most[job])
        points = [point for point in self.points(job) if point.batch_size > 0.0 and point.rate > 0.0]
        if not (points and batch > 0.0):
            return math.nan
        nearest = min(
            points, key=lambda point: (abs(math.log(point.batch_size / batch)), abs(point.gpus - most), point.locality)
        )
        return self.at(job, (batch,), nearest.batch_size, nearest.rate * most / nearest.gpus)[0].rate

    def largest(self, job: int) -> float:
        """Return the largest observed batch size of the job's kind; 0 if there is none."""
        return max((point.batch_size for point in self.points(job) if point.batch_size > 0.0), default=0.0)

    def _over_all(self) -> float:
        """Return the mean exponent over kinds with rates at several batch sizes, or the option if there are none."""
        if self._shared is None:
            known = [exponent(points) for points in self._snapshot.profiles.values()]
            known = [gain for gain in known if not math.isnan(gain)]
            self._shared = sum(known) / len(known) if known else self._gain
        return self._shared


def exponent(points: Iterable[Point]) -> float:
    """Return the exponent g of samples per second as a power of the batch size.

    It is NaN unless rates at two batch sizes are known.
    """
    by_setting: Gains = {}
    for point in points:
        if point.batch_size > 0.0 and point.rate > 0.0:
            setting = point.gpus, point.gpu_type, int(point.locality)
            by_setting.setdefault(setting, {}).setdefault(point.batch_size, point.rate)
    found = []
    for rates in by_setting.values():
        small, large = min(rates), max(rates)
        if large > small:
            found.append(1.0 + math.log(rates[large] / rates[small]) / math.log(large / small))
    return min(max(sum(found) / len(found), 0.0), 1.0) if found else math.nan
