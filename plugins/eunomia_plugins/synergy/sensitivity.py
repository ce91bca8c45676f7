"""The refiner ``sensitivity`` (Synergy §3.2, §4.2).

It sets the minimum and maximum CPUs and memory of each grant by its job's sensitivity.
"""

import dataclasses
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    AmountRange,
    Contract,
    Feature,
    Grants,
    Menus,
    PluginOptions,
    Snapshot,
    Stage,
    Unit,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import NONE, Ints, Reals
from eunomia_plugins.synergy.demands import Demands


class SensitivityOptions(PluginOptions):
    """Options of ``sensitivity``."""

    saturation: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 0.9
    """A job's demand is the smallest amounts of CPUs and memory that reach this fraction of its best rate."""


class Sensitivity:
    """Sets each grant's range: the maximum is the demand, the minimum the smaller of demand and proportional share.

    A job without known rates by CPUs gets its proportional share; a job that requests CPUs or memory gets the requested
    amounts. A claim of an app gets the largest demand per GPU of the app's jobs.
    """

    name = "sensitivity"
    api = 1
    options_type = SensitivityOptions
    contracts: ClassVar[Contracts] = {
        Stage.REFINE: Contract(needs=frozenset({Feature.GRANTS, Feature.CPU_POINTS, Feature.CPUS_AND_MEMORY}))
    }

    def __init__(self, options: SensitivityOptions) -> None:
        self.options = options
        self._known: dict[tuple[object, ...], tuple[float, float]] = {}

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, allocation: Allocation) -> Allocation:
        """Set the ranges of grants; nothing else changes."""
        grants = allocation.amount
        if not isinstance(grants, Grants) or not allocation.claims.rows.size:
            return allocation
        demands = Demands(snapshot, menus, self.options.saturation, self._known)
        least, most = demands.of_jobs(*_jobs(snapshot, allocation, grants))
        if allocation.claims.unit is not Unit.JOB:
            least, most = _of_apps(snapshot, allocation, grants, demands)
        cpus, memory = (AmountRange(least=least[:, at], most=most[:, at]) for at in (0, 1))
        return dataclasses.replace(allocation, amount=dataclasses.replace(grants, cpus=cpus, memory_gib=memory))


def _jobs(snapshot: Snapshot, allocation: Allocation, grants: Grants) -> tuple[Ints, Ints, Ints]:
    """Return rows, sizes and GPU types of claims of jobs; empty arrays for other claims."""
    rows = allocation.claims.rows
    if allocation.claims.unit is not Unit.JOB:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    kind = snapshot.jobs.gpu_type[rows]
    if grants.gpu_type is not None:
        kind = np.where(grants.gpu_type >= 0, grants.gpu_type, kind)
    return rows.astype(np.int64), grants.gpus.astype(np.int64), kind.astype(np.int64)


def _of_apps(snapshot: Snapshot, allocation: Allocation, grants: Grants, demands: Demands) -> tuple[Reals, Reals]:
    """Return minimum and maximum of each app's claim: its GPUs x the largest per GPU of the app's active jobs."""
    least, most = np.zeros((grants.gpus.size, 2)), np.zeros((grants.gpus.size, 2))
    apps = snapshot.jobs.app[snapshot.active]
    for claim, row in enumerate(allocation.claims.rows.tolist()):
        jobs = snapshot.active[apps == row].astype(np.int64)
        sizes = demands.menus.span(jobs.astype(np.int32))[1]
        jobs, sizes = jobs[sizes > 0], sizes[sizes > 0]
        kind = NONE if grants.gpu_type is None else int(grants.gpu_type[claim])
        low, high = demands.of_jobs(jobs, sizes, np.full(jobs.size, kind, np.int64))
        share = np.array(demands.share(kind))
        each = [(part / sizes[:, None]).max(axis=0, initial=0.0) for part in (low, high)]
        least[claim], most[claim] = ((np.where(part > 0.0, part, share) * grants.gpus[claim]) for part in each)
    return least, most
