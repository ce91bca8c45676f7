"""Fold events about adaptations, future regimes, and rates at any batch size."""

import math
from collections.abc import Iterable

from eunomia.contract.events import Adapted, EventError, JobAdded, RateMeasured, RegimesAnnounced
from eunomia.contract.snapshot import Measured
from eunomia.fold.folding import Folding
from eunomia.fold.kind_profiles import keep_by_kind
from eunomia.fold.probing import measured
from eunomia.model.adaptations import MOST_ADAPTATIONS, Adaptation, Adaptations, Regime
from eunomia.store.state import State
from eunomia.store.writers import cause
from eunomia.units import Cause

_ROUNDING = 1e-6


def adapted(fold: Folding, event: Adapted) -> None:
    """Store a job's new global batch size, and add the adaptation to the job's history."""
    job, state = fold.job(event.job), fold.state
    cells = state.jobs.cells
    if not (math.isfinite(event.batch_size) and event.batch_size > 0.0):
        raise EventError("a batch size must be a number above 0", value=str(event.batch_size), place=event.job)
    at = fold.time(event.at)
    done = event.iterations_done
    if math.isnan(done):
        since = cells.since[job]
        done = cells.done[job] + (0.0 if math.isnan(since) else max(0.0, at - since) * cells.rate[job])
    if not 0.0 <= done < math.inf:
        raise EventError("iterations done must be a number of 0 or more", value=str(done), place=event.job)
    known = state.reports.adaptations.get(job) or Adaptations(first_batch_size=cells.batch_size[job])
    if _is_repeat(known, event.batch_size, done):
        return
    if known.kept and (at < known.kept[-1].at or done < known.floor):
        last = known.kept[-1]
        rule = f"regimes must be in order: the last began at {last.at:g} s and {known.floor:g} iterations"
        raise EventError(rule, value=f"{at:g} s and {done:g} iterations", place=event.job)
    _check_epochs(known.regimes(done), cells.epochs[job], cells.samples_per_epoch[job], event)
    now = Adaptation(at=at, batch_size=event.batch_size, iterations_done=done)
    state.reports.adaptations[job] = known.then(now)
    state.jobs.set(job, batch_size=event.batch_size)
    if job in state.reports.measured or job in state.reports.measured_at_others:
        _sort_rates(state, job)
    state.touch(job=job)
    cause(state, Cause.ADAPTED)


def regimes_announced(fold: Folding, event: RegimesAnnounced) -> None:
    """Store the announced future regimes of a job."""
    job, state = fold.job(event.job), fold.state
    if len(event.regimes) > MOST_ADAPTATIONS:
        rule = f"a job must announce at most {MOST_ADAPTATIONS} coming regimes"
        raise EventError(rule, value=str(len(event.regimes)), place=event.job)
    for regime in event.regimes:
        if not 0.0 < regime.iterations < math.inf:
            rule = "iterations of a coming regime must be a number above 0"
            raise EventError(rule, value=str(regime.iterations), place=event.job)
        if not 0.0 <= regime.rate < math.inf:
            rule = "the rate of a coming regime must be a number of 0 or more"
            raise EventError(rule, value=str(regime.rate), place=event.job)
        if not _is_declared_well(regime.batch_size):
            raise EventError("a batch size must be a number above 0", value=str(regime.batch_size), place=event.job)
    cells = state.jobs.cells
    whole, coming = cells.iterations[job], sum(regime.iterations for regime in event.regimes)
    if coming > whole * (1.0 + _ROUNDING):
        rule = f"coming regimes must fit into the job's {whole:g} iterations"
        raise EventError(rule, value=f"{coming:g} iterations", place=event.job)
    state.reports.coming_regimes.pop(job, None)
    if event.regimes:
        state.reports.coming_regimes[job] = event.regimes
    state.touch(job=job)
    cause(state, Cause.REPORTED)


def _is_repeat(known: Adaptations, batch: float, done: float) -> bool:
    """Return whether an adaptation is already in the history, as its report arrived twice."""
    if not known.kept or known.floor < known.kept[-1].iterations_done:
        return False
    return any(one.batch_size == batch and one.iterations_done == done for one in known.kept)


def _check_epochs(regimes: Iterable[Regime], epochs: float, samples: float, event: Adapted) -> None:
    """Refuse an adaptation after the last epoch, with a tolerance of one epoch for partial batches."""
    if math.isnan(epochs) or math.isnan(samples):
        return
    steps = [(one.end - one.start, math.ceil(samples / one.batch_size)) for one in regimes if one.batch_size > 0.0]
    done = sum(iterations / in_epoch for iterations, in_epoch in steps)
    if done > (epochs + 1.0) * (1.0 + _ROUNDING):
        rule = f"a job must adapt within its {epochs:g} epochs"
        raise EventError(rule, value=f"epoch {done:.6g}", place=event.job)


def check_declared(event: JobAdded) -> None:
    """Check that a job's batch size, epochs and samples per epoch are positive or NaN (not declared).

    Raises:
        EventError: a value is not positive; the error names it.
    """
    for name in ("batch_size", "epochs", "samples_per_epoch"):
        number = getattr(event, name)
        if not _is_declared_well(number):
            raise EventError(f"{name} must be a number above 0", value=str(number), place=event.job)


def declares_well(event: JobAdded) -> bool:
    """Return whether ``check_declared`` would raise no error."""
    batch, epochs, samples = event.batch_size, event.epochs, event.samples_per_epoch
    if batch <= 0.0 or epochs <= 0.0 or samples <= 0.0:
        return False
    return batch != math.inf and epochs != math.inf and samples != math.inf  # NaN: not declared


def _is_declared_well(number: float) -> bool:
    return number != number or 0.0 < number < math.inf


def reported_back(state: State, job: int, iterations: float) -> None:
    """Lower the adaptation floor if a job resumed from an older checkpoint, so that it may repeat adaptations."""
    known = state.reports.adaptations.get(job)
    if known is not None:
        state.reports.adaptations[job] = known.back_to(iterations)


def rate_measured(fold: Folding, event: RateMeasured) -> None:
    """Store a measured rate, which replaces an older one at the same setting and batch size."""
    job = fold.job(event.job)
    if not (math.isfinite(event.rate) and event.rate >= 0.0 and event.gpus > 0):
        raise EventError("a measured rate must not be negative", value=str(event.rate), place=event.job)
    if not (math.isnan(event.batch_size) or 0.0 < event.batch_size < math.inf):
        raise EventError("a batch size must be a number above 0", value=str(event.batch_size), place=event.job)
    for name, amount in (("CPUs", event.cpus), ("memory", event.memory_gib)):
        if not _is_declared_well(amount):
            raise EventError(f"{name} of a measured rate must be above 0", value=str(amount), place=event.job)
    seen = Measured(
        job=job,
        gpus=event.gpus,
        gpu_type=event.gpu_type,
        locality=event.locality,
        rate=event.rate,
        batch_size=event.batch_size,
        cpus=event.cpus,
        memory_gib=event.memory_gib,
    )
    state = fold.state
    present = seen.holds_at(state.jobs.cells.batch_size[job])
    rates = state.reports.measured if present else state.reports.measured_at_others
    rates[job] = (*_without(rates.get(job, ()), seen, any_batch=present), seen)
    keep_by_kind(state, job, event)
    if state.owners.probing:
        measured(fold, job, event)
    state.touch(job=job)
    cause(state, Cause.REPORTED)


def _sort_rates(state: State, job: int) -> None:
    """Divide a job's rates into those valid at its present batch size and the others.

    A rate without a batch size is valid at any.
    """
    batch = state.jobs.cells.batch_size[job]
    old, others = state.reports.measured.pop(job, ()), state.reports.measured_at_others.pop(job, ())
    come = tuple(seen for seen in others if seen.holds_at(batch))
    stay = tuple(seen for seen in old if seen.holds_at(batch))
    for seen in come:
        stay = (*_without(stay, seen, any_batch=True), seen)
    aside = tuple(seen for seen in (*others, *old) if not seen.holds_at(batch))
    if stay:
        state.reports.measured[job] = stay
    if aside:
        state.reports.measured_at_others[job] = aside


def _without(rates: Iterable[Measured], new: Measured, *, any_batch: bool) -> tuple[Measured, ...]:
    """Return the rates except those that a new rate replaces."""
    where = (new.gpus, new.gpu_type, new.locality)
    return tuple(
        seen
        for seen in rates
        if (seen.gpus, seen.gpu_type, seen.locality) != where
        or not (any_batch or _same(seen.batch_size, new.batch_size))
        or not (_same(seen.cpus, new.cpus) and _same(seen.memory_gib, new.memory_gib))
    )


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
