"""The plugin ``isolated``: partition the cluster equally among users or apps, without lending between partitions."""

import dataclasses
import json
from collections import Counter
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    Claims,
    Cluster,
    Contract,
    Feature,
    Grants,
    Memo,
    Menus,
    Offer,
    Pins,
    PluginOptions,
    Reason,
    Scores,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    Verdicts,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.pools import holders, usable
from eunomia.units import Ints, Rows
from eunomia_plugins.allocations.ranking import EVENTS, ranked, reasons

_CONTRACT: Final = Contract(
    needs=frozenset({Feature.SCORES}),
    gives=frozenset({Feature.GRANTS, Feature.PINNED, Feature.JOB_CLAIMS}),
    weighs_users=True,
)
_CONTRACTS: Final[Contracts] = {Stage.ALLOCATION: _CONTRACT}


class IsolatedOptions(PluginOptions):
    """Options of ``isolated``."""

    among: Literal["users", "apps"] = "users"
    """Whether each user or each app owns a part of the cluster."""
    parts: Annotated[int, Field(ge=0)] = 0
    """Fixed number of parts into which the cluster is divided; 0: the present number of owners."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tenants:
    """The memo of ``isolated``: the part of each owner, by the owner's id."""

    version: ClassVar[int] = 1
    part: dict[str, int]

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON, sorted by id."""
        return json.dumps(self.part, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; only version 1 exists."""
        return cls(json.loads(data))

    def settled(self, owners: list[str], parts: int) -> Self:
        """Return the memo without owners that left, and with each new owner in the part with the fewest owners."""
        part = {owner: self.part[owner] for owner in owners if self.part.get(owner, parts) < parts}
        crowd = np.bincount(list(part.values()), minlength=parts)
        for owner in owners:
            if owner not in part:
                part[owner] = int(crowd.argmin())
                crowd[part[owner]] += 1
        return type(self)(part)


class Isolated:
    """The baseline without sharing: each owner's jobs run only on its own part of the cluster."""

    name = "isolated"
    api = 1
    options_type = IsolatedOptions
    contracts: Contracts = _CONTRACTS
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.ALLOCATION: Tenants}

    def __init__(self, options: IsolatedOptions) -> None:
        self.options = options
        weighs_users = options.among == "users"
        self.contracts = {Stage.ALLOCATION: dataclasses.replace(_CONTRACT, weighs_users=weighs_users)}

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request a round at every arrival and whenever GPUs become free."""
        return Triggers(on=EVENTS)

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Serve each part's jobs, in the order of the valuation, with the free GPUs of that part."""
        jobs = ranked(snapshot, offer.candidates, valuations.form(Scores), valuations.claims)
        claims = Claims(unit=Unit.JOB, rows=jobs)
        least, kind = menus.span(jobs)[0], snapshot.jobs.gpu_type[jobs]
        part, parts, memo = self._parts(snapshot, jobs)
        present = snapshot.cluster.present()
        start = np.append(present[np.arange(parts) * present.size // parts], snapshot.cluster.gpus)
        why = _reasons(snapshot, offer, least, kind, part, start)
        serving = _Serving(snapshot, menus, claims, usable(snapshot, offer, claims))
        for number in sorted(set(part.tolist())):
            mine = np.flatnonzero((part == number) & (why == int(Reason.OUTRANKED)))
            serving.serve(mine, kind, int(start[number]), int(start[number + 1]))
        late = np.flatnonzero(serving.sizes == 0)
        return Allocation(
            claims=claims,
            amount=Grants(gpus=serving.sizes, pins=serving.pins()),
            order=np.flatnonzero(serving.sizes).astype(np.int32),
            verdicts=Verdicts(rows=jobs[late], reasons=why[late]),
            memo=memo,
        )

    def _parts(self, snapshot: Snapshot, jobs: Rows) -> tuple[Ints, int, Tenants]:
        """Return the part of each job, the number of parts, and the updated memo."""
        apps = snapshot.active_apps
        among_apps = self.options.among == "apps"
        rows = apps if among_apps else snapshot.apps.user[apps]
        ids = (snapshot.apps if among_apps else snapshot.users).id
        owners = list(dict.fromkeys(str(ids[row]) for row in rows.tolist()))
        parts = max(1, min(self.options.parts or len(owners), int(snapshot.cluster.capacity.sum())))
        old = snapshot.memos.of(self.name, Stage.ALLOCATION)
        tenants = (old if isinstance(old, Tenants) else Tenants({})).settled(owners, parts)
        of_row = np.zeros(ids.size, np.int64)
        for row in set(rows.tolist()):
            of_row[row] = tenants.part[str(ids[row])]
        mine = snapshot.jobs.app[jobs]
        return of_row[mine if among_apps else snapshot.apps.user[mine]], parts, tenants


def _reasons(snapshot: Snapshot, offer: Offer, least: Ints, kind: Rows, part: Ints, start: Ints) -> Rows:
    """Return the reason of each job if it gets no GPUs; NO_SIZE_FITS if it is too large for its owner's part."""
    why = reasons(least, kind, offer.capacity)
    types = len(snapshot.cluster.gpu_types)
    present, of_type = snapshot.cluster.present(), snapshot.cluster.gpu_type
    parted = np.split(present, np.searchsorted(present, start[1:-1]))
    spans = [np.bincount(of_type[gpus], minlength=types) for gpus in parted]
    limit = np.array([[*span, span.max()] for span in spans])[part, kind]
    why[(why == int(Reason.OUTRANKED)) & (least > limit)] = int(Reason.NO_SIZE_FITS)
    return why


def _homes(cluster: Cluster, gpus: Ints, holder: Ints) -> dict[int, Counter[int]]:
    """Return the number of these GPUs on each machine, for each claim that holds any."""
    homes: dict[int, Counter[int]] = {}
    for claim, machine in zip(holder.tolist(), cluster.machine[gpus].tolist(), strict=True):
        if claim >= 0:
            homes.setdefault(claim, Counter())[machine] += 1
    return homes


class _Serving:
    """Chooses sizes and machines of jobs."""

    def __init__(self, snapshot: Snapshot, menus: Menus, claims: Claims, gpus: Ints) -> None:
        self.cluster, self.menus, self.jobs = snapshot.cluster, menus, claims.rows
        self.gpus = gpus
        self.home = _homes(self.cluster, gpus, holders(snapshot, claims, gpus))
        self.machine_type: list[int] = self.cluster.machine_type.tolist()
        self.sizes = np.zeros(claims.rows.size, np.int64)
        self.pinned: list[tuple[int, int, int]] = []

    def serve(self, mine: Ints, kind: Rows, start: int, end: int) -> None:
        """Grant jobs, given as indices in order, free GPUs from ``start`` to ``end`` (exclusive)."""
        here = self.gpus[(self.gpus >= start) & (self.gpus < end)]
        free = Counter(self.cluster.machine[here].tolist())
        by_type = np.bincount(self.cluster.gpu_type[here], minlength=len(self.cluster.gpu_types)).tolist()
        for index in mine.tolist():
            if not any(by_type):
                return
            wanted = kind.item(index)
            of = wanted if wanted >= 0 else by_type.index(max(by_type))
            size = self.menus.largest_at_most(self.jobs.item(index), by_type[of])
            if size:
                by_type[of] -= size
                self._pin(index, size, of, free)

    def _pin(self, index: int, size: int, kind: int, free: Counter[int]) -> None:
        """Pin a job to its current machines, else to the best-fitting machine, else to as few machines as possible."""
        self.sizes[index] = size
        home: dict[int, int] = self.home.get(index, {})
        types = self.machine_type
        if sum(home.values()) != size or any(types[at] != kind or free[at] < count for at, count in home.items()):
            home = {at: free[at] for at in sorted(free) if free[at] and types[at] == kind}
            fits = [at for at, count in home.items() if count >= size]
            order = [min(fits, key=home.__getitem__)] if fits else sorted(home, key=home.__getitem__, reverse=True)
        else:
            order = sorted(home)
        for machine in order:
            part = min(size, home[machine])
            if part:
                self.pinned.append((index, machine, part))
                free[machine] -= part
                size -= part

    def pins(self) -> Pins | None:
        """Return the pins of all served jobs; None if no job was served."""
        if not self.pinned:
            return None
        claim, machine, gpus = np.array(self.pinned, np.int64).T
        return Pins(claim=claim.astype(np.int32), machine=machine.astype(np.int32), gpus=gpus)
