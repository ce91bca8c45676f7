"""Forecasts of each job's future regimes, cached until an observation changes them."""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from eunomia import Adapts, ComingRegime, Menus, Snapshot
from eunomia.units import Rows
from eunomia_plugins.shockwave.forecasts.memo import Belief
from eunomia_plugins.shockwave.forecasts.options import ShockwaveForecastOptions
from eunomia_plugins.shockwave.forecasts.patterns import coming_batch_sizes
from eunomia_plugins.shockwave.forecasts.posterior import Past, posterior
from eunomia_plugins.shockwave.forecasts.rates import KnownRates, RateAt

_ADAPTING: Final = (int(Adapts.ACCORDION), int(Adapts.GNS))


class EpochsDone(NamedTuple):
    """The progress of a job, in epochs and by regime."""

    past: Past
    batch_sizes: tuple[float, ...]
    """Batch size of each regime so far, the present one last."""
    start: float
    """Iterations done when the present regime began."""


class Forecast(NamedTuple):
    """The forecast of a job, with the values from which it was derived."""

    basis: tuple[object, ...]
    coming: tuple[ComingRegime, ...]
    belief: Belief
    until: float
    """Iterations done at which the forecast must be recomputed."""


def forecast_rows(snapshot: Snapshot) -> Rows:
    """Return the active jobs with a forecast: mode, epochs, samples per epoch and batch size must be declared.

    For a job that has adapted, the batch size before its first adaptation must also be known.
    """
    jobs, rows = snapshot.jobs, snapshot.active
    known = (jobs.epochs[rows] > 0.0) & (jobs.samples_per_epoch[rows] > 0.0) & (jobs.batch_size[rows] > 0.0)
    rows = rows[known & np.isin(jobs.adapts[rows], _ADAPTING)]
    adapted = snapshot.ledger.adaptations
    undeclared = [job for job, history in adapted.items() if math.isnan(history.first_batch_size)]
    return rows[~np.isin(rows, undeclared)] if undeclared else rows


def steps_of(samples: float, batch: float) -> float:
    """Return the number of iterations of an epoch, the last of which may have a smaller batch."""
    return float(math.ceil(samples / batch))


def progress_of(snapshot: Snapshot, job: int, done: float) -> EpochsDone:
    """Return a job's progress by regime until ``done`` iterations, from its adaptation history."""
    samples, batch = float(snapshot.jobs.samples_per_epoch[job]), float(snapshot.jobs.batch_size[job])
    history = snapshot.ledger.adaptations.get(job)
    if history is None:
        return EpochsDone(Past((), done / steps_of(samples, batch)), (batch,), 0.0)
    regimes = history.regimes(max(done, history.floor))  # a report of progress may be older than the adaptation
    epochs = [(one.end - one.start) / steps_of(samples, one.batch_size) for one in regimes]
    batches = [one.batch_size for one in regimes]
    if history.first_iterations > 0.0:  # older regimes, which the history no longer holds, count as one
        batches.insert(0, history.first_batch_size)
        epochs.insert(0, history.first_iterations / steps_of(samples, history.first_batch_size))
    return EpochsDone(Past(tuple(epochs[:-1]), epochs[-1]), tuple(batches), regimes[-1].start)


class Forecasts:
    """A cache of the last forecast of each job, by id.

    Args:
        options: options of the plugin.
    """

    def __init__(self, options: ShockwaveForecastOptions) -> None:
        self._options = options
        self._last: dict[str, Forecast] = {}

    def of(self, snapshot: Snapshot, menus: Menus, known: KnownRates) -> dict[int, Forecast]:
        """Return the forecasts of all jobs that can be forecast, by job row."""
        rows = forecast_rows(snapshot)
        whole, left = snapshot.jobs.iterations[rows], snapshot.iterations_left(rows)
        rates = menus.full_rate(rows)
        found: dict[int, Forecast] = {}
        columns = (rows, whole, left, rates, snapshot.jobs.id[rows])
        last, self._last = self._last, {}
        for job, total, ahead, rate, name in zip(*(column.tolist() for column in columns), strict=True):
            basis = _basis(snapshot, job, total, rate)
            kept = last.get(name)
            if kept is None or not total - ahead < kept.until or not _same(kept.basis, basis):
                kept = self._forecast(snapshot, known, job, total - ahead, rate, basis)
            found[job] = self._last[name] = kept
        return found

    def _forecast(
        self, snapshot: Snapshot, known: KnownRates, job: int, done: float, rate: float, basis: tuple[object, ...]
    ) -> Forecast:
        seen, options = progress_of(snapshot, job, done), self._options
        mode, samples = Adapts(int(snapshot.jobs.adapts[job])), float(snapshot.jobs.samples_per_epoch[job])
        epochs, kind = float(snapshot.jobs.epochs[job]), snapshot.kinds[int(snapshot.jobs.job_kind[job])]
        largest = options.limit(kind) or max(known.largest(job), seen.batch_sizes[0] * options.growth)
        later = (
            ()
            if options.rule == "last"
            else coming_batch_sizes(mode, seen.batch_sizes, largest, options.accordion_regimes)
        )
        whole_epochs = Past(seen.past.finished, float(math.floor(seen.past.present)))
        belief = posterior(options.rule, epochs, len(seen.batch_sizes) + len(later), whole_epochs)
        batches = (seen.batch_sizes[-1], *later)
        ahead = [RateAt(rate, known=True), *known.at(job, later, batches[0], rate)]
        steps = [steps_of(samples, batch) for batch in batches]
        seconds = tuple(step / at.rate if at.rate > 0.0 else math.inf for step, at in zip(steps, ahead, strict=True))
        ends = max(belief.mean()[belief.present], whole_epochs.present + 1.0)
        if options.rule == "bayesian":
            ends = whole_epochs.present + 1.0
        return Forecast(
            basis=basis,
            coming=_coming(
                float(snapshot.jobs.iterations[job]) - done, belief.left(seen.past), batches, steps, seconds
            ),
            belief=Belief(
                posterior=belief,
                batch_sizes=(*seen.batch_sizes, *later),
                seconds_per_epoch=seconds,
                known=tuple(at.known for at in ahead),
            ),
            until=seen.start + ends * steps[0] if later else math.inf,
        )


def _basis(snapshot: Snapshot, job: int, total: float, rate: float) -> tuple[object, ...]:
    """Return the inputs of a forecast except the iterations done."""
    return (
        total,
        rate,
        snapshot.ledger.adaptations.get(job),
        snapshot.measured.get(job),
        snapshot.measured_at_others.get(job),
        snapshot.profiles.get(int(snapshot.jobs.job_kind[job])),
    )


def _same(old: Iterable[object], new: Iterable[object]) -> bool:
    """Return whether two sets of inputs are equal; histories and rates are immutable, so identity suffices."""
    return all(one is other or (isinstance(one, float) and one == other) for one, other in zip(old, new, strict=True))


def _coming(
    left: float,
    epochs: Sequence[float],
    batches: Sequence[float],
    steps: Sequence[float],
    seconds: Sequence[float],
) -> tuple[ComingRegime, ...]:
    """Return future regimes in the iterations in which the job's work is counted.

    Work may be counted in iterations at the present batch size, or in those of each regime. Iterations after the
    present regime are divided in proportion to epochs, with rates such that each regime takes the expected time.

    Args:
        left: iterations left.
        epochs: [regime, the present one first] epochs left.
        batches: [regime] batch size.
        steps: [regime] iterations per epoch.
        seconds: [regime] seconds per epoch.
    """
    rest, later = left - epochs[0] * steps[0], sum(epochs[1:])
    if not (rest > _LITTLE * left and later > 0.0 and all(map(math.isfinite, seconds))):
        return ()
    return tuple(
        ComingRegime(iterations=rest * each / later, rate=rest / later / pace, batch_size=batch)
        for each, batch, pace in zip(epochs[1:], batches[1:], seconds[1:], strict=True)
        if each > 0.0
    )


_LITTLE: Final = 1e-9
