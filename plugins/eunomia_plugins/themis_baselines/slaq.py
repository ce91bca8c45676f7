"""SLAQ (Zhang et al., SoCC 2017): the value of GPUs is the reduction of loss in the coming epoch."""

from typing import ClassVar

import numpy as np

from eunomia import (
    BySize,
    Claims,
    Contract,
    Duration,
    Feature,
    Menus,
    Offer,
    PluginOptions,
    Seconds,
    SizeUnit,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.model.forecasts import LossCurve
from eunomia.units import Reals, Rows
from eunomia_plugins.themis_baselines.sizes import SizeRows, size_rows

ASSUMED_STEPS = 100.0
"""Without a loss curve, the loss decreases as 1 / k over this many equal steps of the job's work (SLAQ §3.1)."""


class SlaqOptions(PluginOptions):
    """Options of ``slaq``."""

    epoch: Duration = Seconds(600.0)
    """Length of the coming epoch, for which the loss is predicted."""
    starve: bool = False
    """Whether jobs may starve; if not, each job gets its smallest size first (SLAQ §4.1)."""


class Slaq:
    """The valuation of SLAQ: the value of a size is the normalized reduction of loss in the epoch (§3.2 and §4.1).

    Losses are normalized by the largest loss of the curve, which is at its start, so that jobs are comparable. Curves
    are those of the app's ``Forecast``; a job without one is assumed to follow 1 / k.
    """

    name = "slaq"
    api = 1
    options_type = SlaqOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}),
            gives=frozenset({Feature.BY_SIZE, Feature.JOB_CLAIMS}),
            units=frozenset({SizeUnit.LOSS_REDUCTION}),
        )
    }

    def __init__(self, options: SlaqOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Value every size of every candidate."""
        jobs = offer.candidates
        rows = size_rows(snapshot, menus, jobs)
        value = self._reduction(snapshot, jobs, rows)
        claim, gpus = rows.claim, rows.gpus
        if self.options.starve:
            nothing = np.arange(jobs.size, dtype=np.int32)
            claim = np.concatenate([claim, nothing])
            gpus = np.concatenate([gpus, np.zeros(jobs.size, np.int64)])
            value = np.concatenate([value, np.zeros(jobs.size)])
        form = BySize(claim=claim, gpus=gpus, value=value, unit=SizeUnit.LOSS_REDUCTION)
        return Valuations(claims=Claims(unit=Unit.JOB, rows=jobs), forms=(form,))

    def _reduction(self, snapshot: Snapshot, jobs: Rows, rows: SizeRows) -> Reals:
        """Return the normalized reduction of loss in the epoch, [row], within the iterations that the job has left."""
        left = rows.left
        ahead = np.minimum(rows.rate * float(self.options.epoch), left)
        done = done_by(snapshot, jobs, rows.claim, left)
        steps = (done + left) / ASSUMED_STEPS
        fall: Reals = 1.0 / (1.0 + done / steps) - 1.0 / (1.0 + (done + ahead) / steps)
        for index, curve in curves_of(snapshot, jobs).items():
            mine = np.flatnonzero(rows.claim == index)
            fall[mine] = normalized_fall(curve, done[mine], ahead[mine])
        return fall


def done_by(snapshot: Snapshot, jobs: Rows, claim: Rows, left: Reals) -> Reals:
    """Return the iterations done, [row]; for a job of unknown work, the GPU-seconds received (see ``size_rows``)."""
    whole = snapshot.jobs.iterations[jobs][claim]
    received = snapshot.ledger.jobs.received[jobs].sum(axis=1)[claim]
    return np.where(np.isfinite(whole), np.maximum(whole - left, 0.0), received)


def normalized_fall(curve: LossCurve, done: Reals, ahead: Reals) -> Reals:
    """Return the decrease of loss in the next ``ahead`` iterations, as a fraction of that from start to asymptote."""
    before, after = (np.power(1.0 + at, -curve.exponent) for at in (done, done + ahead))
    return np.asarray(before - after)


def curves_of(snapshot: Snapshot, jobs: Rows) -> dict[int, LossCurve]:
    """Return the fitted loss curves by index of job, for jobs whose app reported one."""
    reported = {curve.job: curve for forecast in snapshot.forecasts.values() for curve in forecast.losses}
    if not reported:
        return {}
    names: list[str] = [str(name) for name in snapshot.jobs.id[jobs]]
    return {index: reported[name] for index, name in enumerate(names) if name in reported}
