"""The input of a programme: the jobs, the rate of each on each GPU type, and the GPUs to share."""

import dataclasses

import numpy as np

from eunomia import Menus, Offer, Reason, Snapshot
from eunomia.units import Bools, Reals, Rows
from eunomia_plugins.type_rates import rates_by_type

NO_REASONS: Rows = np.empty(0, np.int32)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instance:
    """The jobs and GPU types of a programme, one row per job. Gangs run whole, on one type at a time."""

    jobs: Rows
    gpus: Reals
    """[job] size of the gang."""
    able: Bools
    """[job, type] whether the job may run on the type and fits."""
    rate: Reals
    """[job, type] iterations per second of the gang; 0: cannot run there; 1 on all types if no rate is known."""
    weight: Reals
    capacity: Reals
    """[type] number of GPUs."""

    @property
    def equal_rate(self) -> Reals:
        """Return the rate of each job with its time spread over types in proportion to GPUs (Gavel §4.1, X_equal)."""
        found: Reals = self.rate @ (self.capacity / max(float(self.capacity.sum()), 1.0))
        return found

    @property
    def pooled(self) -> bool:
        """Return whether all GPUs form one pool: one type, or every job runs equally fast on every type."""
        return self.capacity.size == 1 or bool(self.able.all() and (self.rate == self.rate[:, :1]).all())

    def only(self, kept: Bools) -> "Instance":
        """Return the instance restricted to some of the jobs."""
        return Instance(
            jobs=self.jobs[kept],
            gpus=self.gpus[kept],
            able=self.able[kept],
            rate=self.rate[kept],
            weight=self.weight[kept],
            capacity=self.capacity,
        )

    def blind(self) -> "Instance":
        """Return the instance without performance data; types then differ only in which jobs may use them."""
        best = self.rate.max(axis=1, keepdims=True)
        return dataclasses.replace(self, rate=np.where(self.able, np.where(best > 0.0, best, 1.0), 0.0))


def instance_of(snapshot: Snapshot, menus: Menus, offer: Offer, *, weighted: bool, speeds: bool) -> Instance:
    """Return the instance of all active jobs that fit on this cluster at the largest size on their menus.

    Args:
        snapshot: the current state.
        menus: the sizes and rates of jobs.
        offer: the offer, with the cluster's GPUs by type.
        weighted: whether a job has the weight of its app.
        speeds: whether a job can run only on types for which its menu has a rate.
    """
    jobs = snapshot.active
    gpus = menus.span(jobs)[1]
    kind = snapshot.jobs.gpu_type[jobs]
    types = np.arange(offer.capacity.size)
    able: Bools = ((kind[:, None] == -1) | (kind[:, None] == types)) & (gpus[:, None] > 0)
    able &= gpus[:, None] <= offer.capacity
    rate = np.where(able, rates_by_type(menus, jobs, gpus, offer.capacity.size), 0.0)
    if speeds:
        able &= rate > 0.0
    weight = snapshot.apps.weight[snapshot.jobs.app[jobs]] if weighted else np.ones(jobs.size)
    whole = Instance(
        jobs=jobs, gpus=gpus.astype(float), able=able, rate=rate, weight=weight, capacity=offer.capacity.astype(float)
    )
    somewhere: Bools = np.asarray(able.any(axis=1))
    return whole.only(somewhere)


def among(chosen: Rows, rows: Rows) -> Bools:
    """Return for each row whether it is among the chosen rows."""
    mask: Bools = np.zeros(1 + max(int(chosen.max(initial=0)), int(rows.max(initial=0))), dtype=bool)
    mask[chosen] = True
    found: Bools = mask[rows]
    return found


def left_out(snapshot: Snapshot, menus: Menus, offer: Offer, shares: Rows) -> tuple[Rows, Rows]:
    """Return active jobs without a share, and the reasons: too large for the cluster, or arrived after the solution.

    Args:
        snapshot: the current state.
        menus: the sizes of jobs.
        offer: the offer, with the cluster's GPUs by type.
        shares: the active jobs that have a share, each once.
    """
    if shares.size == snapshot.active.size:
        return shares[:0], NO_REASONS
    rest = snapshot.active[~among(shares, snapshot.active)]
    gpus, kind = menus.span(rest)[1], snapshot.jobs.gpu_type[rest]
    limit = np.append(offer.capacity, offer.capacity.max(initial=0))[kind]
    why = np.full(rest.size, int(Reason.AWAITING_ROUND), np.int32)
    why[(gpus <= 0) | (gpus > limit)] = int(Reason.NO_SIZE_FITS)
    why[limit == 0] = int(Reason.NO_GPU_OF_TYPE)
    return rest, why
