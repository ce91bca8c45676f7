"""The refiner ``divide``: divide grants to users, groups and apps among their jobs."""

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from eunomia import (
    Allocation,
    Claims,
    Contract,
    Feature,
    Grants,
    Menus,
    Offer,
    Pins,
    PluginError,
    PluginOptions,
    Reason,
    Snapshot,
    Stage,
    Unit,
    hookimpl,
    turned_down,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.refine.turns import longest_waiting, owner_of


class DivideOptions(PluginOptions):
    """Options of ``divide``."""

    by: Literal["longest_waiting", "weight"] = "longest_waiting"
    """How a grant is divided: longest-waiting jobs first, or among apps in proportion to their weights."""


class Divide:
    """Divides each claim's GPUs among its jobs, each at the largest size that still fits.

    Grants to jobs are not changed.
    """

    name = "divide"
    api = 1
    options_type = DivideOptions
    contracts: ClassVar[Contracts] = {
        Stage.REFINE: Contract(needs=frozenset({Feature.GRANTS}), gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}))
    }

    def __init__(self, options: DivideOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Divide the grants in the allocation's order; GPUs that no job of a claim can use stay free."""
        grants = allocation.amount
        if not isinstance(grants, Grants):
            raise PluginError(f"{self.name} must get whole GPUs", value=type(grants).__name__)
        if allocation.claims.unit is Unit.JOB:
            return dataclasses.replace(allocation, memo=None, record=None)
        owner = owner_of(snapshot, allocation.claims, offer.candidates)
        jobs, owner = offer.candidates[owner >= 0], owner[owner >= 0]
        parts = _Parts.empty(jobs.size)
        turns = self._turns(snapshot, jobs)
        standby = [] if allocation.standby is None else allocation.standby.tolist()
        ordered = 0
        for claims in (allocation.order.tolist(), standby):
            ordered = len(parts.order)
            for claim in claims:
                mine = turns[owner[turns] == claim]
                self._divide(snapshot, menus, jobs, mine, _Budget.of(grants, claim), parts)
        lease, protected = allocation.lease, allocation.protected
        return dataclasses.replace(
            allocation,
            claims=Claims(unit=Unit.JOB, rows=jobs),
            amount=Grants(gpus=parts.gpus, gpu_type=_types(grants, owner), pins=parts.pins()),
            order=np.array(parts.order[:ordered], np.int32),
            standby=None if allocation.standby is None else np.array(parts.order[ordered:], np.int32),
            lease=lease[owner] if isinstance(lease, np.ndarray) else lease,
            protected=protected[owner] if isinstance(protected, np.ndarray) else protected,
            starts_at=None,
            verdicts=turned_down(jobs[parts.gpus == 0], Reason.OUTRANKED),
            record=None,
            memo=None,
        )

    def _turns(self, snapshot: Snapshot, jobs: Rows) -> Ints:
        if self.options.by == "longest_waiting":
            return longest_waiting(snapshot, jobs)
        order: Ints = np.argsort(snapshot.jobs.arrived[jobs], kind="stable")
        return order

    def _divide(
        self, snapshot: Snapshot, menus: Menus, jobs: Rows, mine: Ints, budget: "_Budget", parts: "_Parts"
    ) -> None:
        """Set the sizes of one claim's jobs; by weight, first within each app's part, then from the remainder."""
        if self.options.by == "weight":
            apps = snapshot.jobs.app[jobs[mine]]
            rows = np.unique(apps)
            quota = quotas(budget.gpus, snapshot.apps.weight[rows])
            for row, part in zip(rows.tolist(), quota.tolist(), strict=True):
                for index in mine[apps == row].tolist():
                    part -= parts.give(index, menus.largest_at_most(int(jobs[index]), min(part, budget.gpus)), budget)
        for index in mine.tolist():
            if parts.gpus[index] == 0:
                parts.give(index, menus.largest_at_most(int(jobs[index]), budget.gpus), budget)


def quotas(gpus: int, weights: Reals) -> Ints:
    """Return whole GPUs in proportion to weights, by the largest-remainder method."""
    exact = gpus * weights / weights.sum() if weights.size and weights.sum() > 0.0 else np.zeros(weights.size)
    whole = np.floor(exact + 1e-9).astype(np.int64)
    rest = gpus - int(whole.sum()) if exact.any() else 0
    whole[np.argsort(whole - exact, kind="stable")[:rest]] += 1
    return whole


@dataclasses.dataclass(slots=True)
class _Budget:
    """The GPUs left of one grant, in total and by pinned machine."""

    gpus: int
    machines: dict[int, int]

    @classmethod
    def of(cls, grants: Grants, claim: int) -> "_Budget":
        machines: dict[int, int] = {}
        if grants.pins is not None:
            own = grants.pins.claim == claim
            machines = dict(zip(grants.pins.machine[own].tolist(), grants.pins.gpus[own].tolist(), strict=True))
        return cls(int(grants.gpus[claim]), machines)

    def take(self, gpus: int) -> list[tuple[int, int]]:
        """Take GPUs from the grant, on as few of its machines as possible."""
        self.gpus -= gpus
        taken: list[tuple[int, int]] = []
        while gpus and self.machines:
            machine = _best_machine(self.machines, gpus)
            part = min(gpus, self.machines[machine])
            taken.append((machine, part))
            gpus -= part
            self.machines[machine] -= part
            if not self.machines[machine]:
                del self.machines[machine]
        return taken


def _best_machine(left: dict[int, int], gpus: int) -> int:
    """Return the fullest machine that fits all GPUs, else the machine with the most GPUs left."""
    fits = [machine for machine in left if left[machine] >= gpus]
    return min(fits, key=left.__getitem__) if fits else max(left, key=left.__getitem__)


class _Parts(NamedTuple):
    """The resulting GPUs and pins of jobs, filled claim by claim."""

    gpus: Ints
    order: list[int]
    pinned: list[tuple[int, int, int]]
    """Tuples of job, machine and number of GPUs."""

    @classmethod
    def empty(cls, jobs: int) -> "_Parts":
        return cls(np.zeros(jobs, np.int64), [], [])

    def give(self, index: int, size: int, budget: _Budget) -> int:
        """Assign a job ``size`` GPUs of the grant, and return ``size``."""
        if size:
            self.gpus[index] = size
            self.order.append(index)
            self.pinned.extend((index, machine, part) for machine, part in budget.take(size))
        return size

    def pins(self) -> Pins | None:
        if not self.pinned:
            return None
        job, machine, gpus = np.array(self.pinned, np.int64).T
        return Pins(claim=job.astype(np.int32), machine=machine.astype(np.int32), gpus=gpus)


def _types(grants: Grants, owner: Ints) -> Rows | None:
    return None if grants.gpu_type is None else grants.gpu_type[owner]
