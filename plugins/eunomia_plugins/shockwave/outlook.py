"""The remaining work of jobs: progress and run times, with each future regime at its own rate (Appendix G)."""

import dataclasses

import numpy as np

from eunomia import Menus, Regimes, Snapshot
from eunomia.units import Bools, Ints, Reals, Rows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outlook:
    """The remaining work of jobs as forecast, one entry or row per job."""

    progress: Reals
    """[job] fraction of its epochs that is done; without declared epochs, of its iterations."""
    iterations: Reals
    """[job, regime] iterations of the present regime and of future ones."""
    seconds: Reals
    """[job, regime] seconds of these iterations at the job's own size; NaN: not known."""
    attained: Reals
    """[job] seconds that it has run, L."""

    @property
    def left(self) -> Reals:
        """Return the remaining run time of a job in seconds, R; NaN: not known."""
        found: Reals = self.seconds.sum(axis=1)
        return found

    @property
    def total(self) -> Reals:
        """Return the total run time of a job in seconds, P; NaN: not known."""
        return self.attained + self.left

    def progress_after(self, rounds: int, length: float) -> Reals:
        """Return the progress after 0 to ``rounds`` rounds, [job, round].

        A job's last round counts as a whole round, as in equation (7).

        If only the remaining work counted, the last round of a job would have the smallest value, and jobs would not
        finish.
        """
        times = np.minimum(length * np.arange(rounds + 1), length * np.ceil(self.left[:, None] / length - _LITTLE))
        done = np.zeros(times.shape)
        start = np.zeros((self.progress.size, 1))
        last = self.seconds.shape[1] - 1 - (self.seconds[:, ::-1] > 0.0).argmax(axis=1)
        for regime in range(self.seconds.shape[1]):
            long = self.seconds[:, regime, None]
            ends = np.where(last[:, None] == regime, np.inf, long)
            ran = np.clip(times - start, 0.0, ends)
            done += ran * (self.iterations[:, regime, None] / np.maximum(long, _LITTLE))
            start = start + long
        left = np.maximum(self.iterations.sum(axis=1, keepdims=True), _LITTLE)
        found: Reals = self.progress[:, None] + (1.0 - self.progress[:, None]) * (done / left)
        return found


_LITTLE = 1e-9


def outlook(snapshot: Snapshot, menus: Menus, jobs: Rows) -> Outlook:
    """Forecast the remaining work of jobs; a job without future regimes keeps its present rate.

    The future regimes cover the last part of a job's work. If less work than theirs is left, the first of them are
    already complete.

    Args:
        snapshot: the current state.
        menus: rates, and regimes if the elasticity stage forecasts them.
        jobs: job rows.
    """
    rate = menus.full_rate(jobs)
    left = snapshot.iterations_left(jobs)
    iterations, rates = left[:, None], rate[:, None]
    if menus.regimes is not None and menus.regimes.job.size:
        iterations, rates = _stretches(menus.regimes, jobs, left, rate)
    speed = np.where(rates > 0.0, rates, np.nan)
    seconds = np.where(iterations > 0.0, iterations / speed, iterations)  # NaN stays
    return Outlook(
        progress=_progress(snapshot, jobs, left),
        iterations=iterations,
        seconds=seconds,
        attained=snapshot.ledger.jobs.attained[jobs],
    )


def _stretches(regimes: Regimes, jobs: Rows, left: Reals, rate: Reals) -> tuple[Reals, Reals]:
    """Return iterations and rates, each [job, regime], the present regime first."""
    place = np.full(1 + max(int(jobs.max(initial=0)), int(regimes.job.max())), -1, np.int64)
    place[jobs] = np.arange(jobs.size)
    owner = place[regimes.job]
    known = owner >= 0
    order = np.argsort(owner[known], kind="stable")
    owner, coming, rates = owner[known][order], regimes.iterations[known][order], regimes.rate[known][order]
    turn = _turns(owner)
    width = 1 + int(turn.max(initial=-1)) + 1
    work, speed = np.zeros((jobs.size, width)), np.ones((jobs.size, width))
    work[owner, turn + 1], speed[owner, turn + 1] = coming, rates
    behind = work[:, ::-1].cumsum(axis=1)[:, ::-1] - work
    work = np.clip(left[:, None] - behind, 0.0, work)
    work[:, 0] = np.maximum(left - behind[:, 0], 0.0)
    speed[:, 0] = rate
    return work, speed


def _turns(owner: Ints) -> Ints:
    """Return the position of each entry among the adjacent entries of its owner."""
    if owner.size == 0:
        return owner
    first: Bools = np.append(True, owner[1:] != owner[:-1])
    at = np.arange(owner.size)
    found: Ints = at - np.maximum.accumulate(np.where(first, at, 0))
    return found


def _progress(snapshot: Snapshot, jobs: Rows, left: Reals) -> Reals:
    """Return F / E: epochs done over total epochs, from the history of batch sizes; else the ratio of iterations."""
    table = snapshot.jobs
    total = table.iterations[jobs]
    done = np.maximum(total - left, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        progress = done / total
    adapted = snapshot.ledger.adaptations
    for index in [at for at, job in enumerate(jobs.tolist()) if job in adapted]:
        job = int(jobs[index])
        samples = table.epochs[job] * table.samples_per_epoch[job]
        regimes = adapted[job].regimes(float(done[index]))
        seen = sum((regime.end - regime.start) * regime.batch_size for regime in regimes)
        if samples > 0.0 and seen >= 0.0:  # neither is NaN
            # An epoch in progress may count as done, so the iterations left bound the progress from above.
            progress[index] = min(seen, samples - table.batch_size[job] * left[index]) / samples
    return np.clip(np.nan_to_num(progress, nan=0.0), 0.0, 1.0)
