"""Refiner: CPUs and memory of each grant by Synergy-Opt's first programme (OSDI'22, §4.1 and A.1)."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from eunomia import Allocation, Contract, Feature, Menus, Offer, PluginOptions, Snapshot, Stage, Unit, hookimpl
from eunomia.contract.allocations import AmountRange, Grants
from eunomia.contract.contracts import Contracts
from eunomia.contract.records import PlainColumn
from eunomia_plugins.synergy.amounts import Programmes, wanted_of
from eunomia_plugins.synergy.demands import Demands, Known

NO_MORE_THAN_THE_SHARE = 1e-9
"""The saturation at which a demand is the least that is as fast as the share."""


class OptOptions(PluginOptions):
    """``synergy_opt`` has no options."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptRecord:
    """One row: the value of a round's programme and the bound that certifies it."""

    value: float
    """Sum of rates of all jobs that take part, each as a multiple of its rate at the proportional share."""
    bound: float
    """No choice of points has a greater sum."""

    @property
    def table(self) -> str:
        """The table's name."""
        return "synergy_opt"

    def columns(self) -> Mapping[str, PlainColumn]:
        """Value, bound, and the part of the bound by which the value may fall short."""
        gap = max(0.0, 1.0 - self.value / self.bound) if self.bound > 0.0 else 0.0
        columns: list[tuple[str, list[float | None]]] = [("value", [self.value]), ("bound", [self.bound])]
        return dict([*columns, ("gap", [gap])])


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
        """Change only the ranges: least and most are the chosen point."""
        grants = allocation.amount
        if not isinstance(grants, Grants) or allocation.claims.unit is not Unit.JOB or not grants.gpus.size:
            return allocation
        demands = Demands(snapshot, menus, NO_MORE_THAN_THE_SHARE, self._known)
        chosen = Programmes(snapshot, offer, allocation, demands).choose(wanted_of(snapshot, allocation, grants))
        ranges = [AmountRange(least=chosen.amounts[:, at], most=chosen.amounts[:, at]) for at in (0, 1)]
        amount = dataclasses.replace(grants, cpus=ranges[0], memory_gib=ranges[1])
        record = OptRecord(value=chosen.value, bound=chosen.bound) if chosen.bound > 0.0 else None
        return dataclasses.replace(allocation, amount=amount, record=record, memo=None)
