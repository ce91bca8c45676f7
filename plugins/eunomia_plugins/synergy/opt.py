"""Refiner: CPUs and memory of each grant by Synergy-Opt's first programme (OSDI'22, §4.1 and A.1)."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from eunomia import (
    Allocation,
    AmountRange,
    Contract,
    Feature,
    Grants,
    Menus,
    Offer,
    PluginOptions,
    Snapshot,
    Stage,
    Unit,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.records import PlainColumn
from eunomia.units import Bools, Reals
from eunomia_plugins.synergy.amounts import Programmes, Wanted, wanted_of
from eunomia_plugins.synergy.demands import Demands, Known

NO_MORE_THAN_THE_SHARE = 1e-9
"""A saturation for which a demand is the least that is as fast as the proportional share."""


class OptOptions(PluginOptions):
    """Options of ``synergy_opt``."""

    exact: bool = False
    """Whether a placement must give a job its chosen point (least = most, as in the paper). Else a job whose point is
    at least its proportional share of CPUs and of memory may get any amounts between the two, where machines cannot be
    filled otherwise."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptRecord:
    """One row: the value of a round's programme and the bound that certifies it."""

    value: float
    """Sum of rates of all jobs in the programme, each as a multiple of its rate at the proportional share."""
    bound: float
    """Upper bound: no choice of points has a greater sum."""

    @property
    def table(self) -> str:
        """The table's name."""
        return "synergy_opt"

    def columns(self) -> Mapping[str, PlainColumn]:
        """Value, bound, and the greatest relative distance of the value from the optimum."""
        gap = max(0.0, 1.0 - self.value / self.bound) if self.bound > 0.0 else 0.0
        return {name: _one(amount) for name, amount in (("value", self.value), ("bound", self.bound), ("gap", gap))}


def _one(amount: float) -> list[float | None]:
    return [amount]


class SynergyOpt:
    """Chooses the CPUs and memory of all jobs served together: the sum of their rates is as great as it can be.

    Each rate counts as a multiple of the job's rate at its proportional share, below which none falls. The CPUs and
    memory of all machines of a type count as one pool; the placement finds machines. Claims of apps keep their shares.
    """

    name = "synergy_opt"
    api = 1
    options_type = OptOptions
    contracts: ClassVar[Contracts] = {
        Stage.REFINE: Contract(needs=frozenset({Feature.GRANTS, Feature.CPU_POINTS, Feature.CPUS_AND_MEMORY}))
    }

    def __init__(self, options: OptOptions) -> None:
        self.options = options
        self._known: Known = {}

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Set the ranges of grants: least and most are the chosen point. Nothing else changes."""
        grants = allocation.amount
        if not isinstance(grants, Grants) or allocation.claims.unit is not Unit.JOB or not grants.gpus.size:
            return allocation
        demands = Demands(snapshot, menus, NO_MORE_THAN_THE_SHARE, self._known)
        wanted = wanted_of(snapshot, allocation, grants)
        chosen = Programmes(snapshot, offer, allocation, demands).choose(wanted)
        least = chosen.amounts if self.options.exact else _floor(chosen.amounts, demands, wanted)
        ranges = [AmountRange(least=least[:, at], most=chosen.amounts[:, at]) for at in (0, 1)]
        amount = dataclasses.replace(grants, cpus=ranges[0], memory_gib=ranges[1])
        record = OptRecord(value=chosen.value, bound=chosen.bound) if chosen.bound > 0.0 else None
        return dataclasses.replace(allocation, amount=amount, record=record, memo=None)


def _floor(amounts: Reals, demands: Demands, wanted: Wanted) -> Reals:
    """Return [claim, 2] the proportional share where the chosen point is at least that in CPUs and memory.

    Else the point.
    """
    kinds = {kind: demands.share(kind) for kind in np.unique(wanted.gpu_type).tolist()}
    share = np.array([kinds[kind] for kind in wanted.gpu_type.tolist()]).reshape(-1, 2) * wanted.gpus[:, None]
    above: Bools = np.asarray((amounts >= share).all(axis=1))
    return np.where(above[:, None], share, amounts)
