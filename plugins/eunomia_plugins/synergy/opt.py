"""The refiner ``synergy_opt``: CPUs and memory of grants by Synergy-Opt's first programme (OSDI'22, §4.1 and A.1)."""

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
"""A saturation so small that the demand is the smallest one that is as fast as the proportional share."""


class OptOptions(PluginOptions):
    """Options of ``synergy_opt``."""

    exact: bool = False
    """Whether a placement must give a job exactly its chosen point, as in the paper. If not, a job whose point is at
    least its proportional share of CPUs and memory may get any amounts between the two, if machines cannot be filled
    otherwise."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptRecord:
    """The record of a round's programme: one row with its value and the bound that certifies it."""

    value: float
    """Sum of the rates of all jobs in the programme, each relative to the job's rate at the proportional share."""
    bound: float
    """Upper bound on the sum for any choice of points."""

    @property
    def table(self) -> str:
        """Return the name of the table."""
        return "synergy_opt"

    def columns(self) -> Mapping[str, PlainColumn]:
        """Return value, bound, and the maximum relative distance of the value from the optimum."""
        gap = max(0.0, 1.0 - self.value / self.bound) if self.bound > 0.0 else 0.0
        return {name: _one(amount) for name, amount in (("value", self.value), ("bound", self.bound), ("gap", gap))}


def _one(amount: float) -> list[float | None]:
    return [amount]


class SynergyOpt:
    """Chooses the CPUs and memory of all served jobs so that the sum of their rates is maximal.

    Each rate is relative to the job's rate at its proportional share, below which none may fall. The CPUs and memory of
    all machines of a type count as one pool; the placement finds machines. Claims of apps get their shares.
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
        """Set the ranges of grants to the chosen points; nothing else changes."""
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
    """Return the minimum amounts, [claim, 2].

    They are the proportional share if the chosen point is at least that in CPUs and memory, else the point.
    """
    kinds = {kind: demands.share(kind) for kind in np.unique(wanted.gpu_type).tolist()}
    share = np.array([kinds[kind] for kind in wanted.gpu_type.tolist()]).reshape(-1, 2) * wanted.gpus[:, None]
    above: Bools = np.asarray((amounts >= share).all(axis=1))
    return np.where(above[:, None], share, amounts)
