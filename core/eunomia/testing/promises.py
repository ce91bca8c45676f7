"""Check a policy's promises by brute force: work conservation, separable values, pins."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from eunomia.contract.allocations import Allocation, Grants, Pins
from eunomia.contract.bundles import ByBundle
from eunomia.contract.claims import Claims
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.pools import Pool, available, owners
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import Stages
from eunomia.contract.valuations import ByType, Form, OverTime, Scores, Valuations
from eunomia.model.workload import JobState
from eunomia.testing.builders import World
from eunomia.testing.guarding import difference, prints
from eunomia.units import NONE, Ints, Rows, Unit


def left_out(
    snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation, placement: Placement
) -> str | None:
    """Find a claim that gets no GPUs although a size on its menu fits on the remaining GPUs (WORK_CONSERVING).

    Args:
        snapshot: the state before the plan is applied.
        menus: the menus of the round.
        offer: the offer of the round.
        allocation: the allocation after the last refiner.
        placement: the placement of the round.

    Returns:
        A description of the claim; None if there is no such claim.
    """
    grants = allocation.amount
    if not isinstance(grants, Grants):
        return None
    free = np.setdiff1d(available(snapshot, offer, allocation), placement.gpus)
    # Granted GPUs that could not be placed are the fault of the placement, not of the allocation.
    settled = np.isin(placement.claim, allocation.order)
    unplaced = max(0, int(grants.gpus[allocation.order].sum()) - int(np.diff(placement.start)[settled].sum()))
    pool = Pool(snapshot, free)
    for job in _waiting(snapshot, offer, allocation):
        kind = int(snapshot.jobs.gpu_type[job])
        kinds = range(len(snapshot.cluster.gpu_types)) if kind == NONE else [kind]
        asked = (float(snapshot.jobs.cpus[job]), float(snapshot.jobs.memory_gib[job]))
        room = max(int(pool.room(each, *asked).sum()) for each in kinds) - unplaced
        size = menus.largest_at_most(job, room)
        if size:
            name, sizes = snapshot.jobs.id[job], menus.sizes(job).tolist()
            return f'"{name}", with sizes {sizes}, was left out where {room} GPUs are left'
    return None


def _waiting(snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Iterator[int]:
    """Yield the rows of waiting candidates; if claims are apps, only those of apps without GPUs."""
    claims, grants = allocation.claims, allocation.amount
    if not isinstance(grants, Grants):
        return
    served = set(claims.rows[allocation.order].tolist())
    holders = set(owners(snapshot, np.arange(snapshot.cluster.gpus), Unit.APP).tolist())
    for job in offer.candidates.tolist():
        app = int(snapshot.jobs.app[job])
        if snapshot.jobs.state[job] != JobState.WAITING or (offer.apps is not None and app not in offer.apps):
            continue
        if claims.unit is Unit.JOB and job not in served:
            yield job
        if claims.unit is Unit.APP and app not in served and app not in holders:
            yield job


# --- separable ------------------------------------------------------------------------------------------------------


def inseparable(stages: Stages, snapshot: Snapshot, offer: Offer, whole: Valuations) -> str | None:
    """Find an app whose values differ when it is valued alone, on ``snapshot.only(app)`` (SEPARABLE).

    Args:
        stages: new stages, as an app's agent has.
        snapshot: the arbiter's snapshot.
        offer: the valued offer.
        whole: the arbiter's valuation.

    Returns:
        A description of the difference; None if there is none.
    """
    unit = whole.claims.unit
    if unit not in (Unit.JOB, Unit.APP):
        return f"claims of {unit.value}s are not of one app each"
    rows = whole.claims.rows
    owner = rows if unit is Unit.APP else snapshot.jobs.app[rows]
    for app in np.unique(owner).tolist():
        alone = snapshot.only(app)
        own = _own_offer(snapshot, alone, offer, app)
        values = stages.valuation(alone, stages.elasticity(alone), own)
        name = snapshot.apps.id[app]
        left = {_name(snapshot, unit, int(rows[at])): at for at in np.flatnonzero(owner == app).tolist()}
        right = {_name(alone, unit, row): at for at, row in enumerate(values.claims.rows.tolist())}
        if set(left) != set(right):
            return f'"{name}" alone values {sorted(right)}, and among others {sorted(left)}'
        for form, other in zip(whole.forms, values.forms, strict=True):
            for claim, at in left.items():
                if not _alike(_row(form, at), _row(other, right[claim])):
                    return f'{type(form).__name__} of "{claim}" is another when "{name}" is valued alone'
    return None


def _own_offer(snapshot: Snapshot, alone: Snapshot, offer: Offer, app: int) -> Offer:
    known = {str(name): row for row, name in enumerate(alone.jobs.id.tolist()) if name is not None}
    mine = [known[str(name)] for name in snapshot.jobs.id[offer.candidates].tolist() if str(name) in known]
    return dataclasses.replace(
        offer,
        apps=np.zeros(1, np.int32),
        candidates=np.array(mine, np.int32),
        contention=offer.contention[app : app + 1],
    )


def _name(snapshot: Snapshot, unit: Unit, row: int) -> str:
    return str((snapshot.jobs if unit is Unit.JOB else snapshot.apps).id[row])


def _row(form: Form, claim: int) -> Mapping[str, Any]:
    """Return the values of one claim in a form, by column."""
    if isinstance(form, Scores):
        return {"score": form.score[claim]}
    if isinstance(form, ByType):
        return {"speedup": form.speedup[claim]}
    if isinstance(form, OverTime):
        return {"utility": form.utility[claim]}
    if isinstance(form, ByBundle):
        return {"now": form.now[claim], "bundles": list(form.bundles(claim))}
    columns = {field.name: getattr(form, field.name) for field in dataclasses.fields(form)}  # type: ignore[arg-type]
    named = columns.pop("claim", None)
    if named is None:
        return {}
    return {name: column[named == claim] for name, column in columns.items() if np.shape(column) == named.shape}


def _alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    if set(left) != set(right):
        return False
    numbers = [name for name, item in left.items() if isinstance(item, np.ndarray | np.floating)]
    close = all(
        np.shape(left[name]) == np.shape(right[name])
        and np.allclose(left[name], right[name], rtol=1e-9, atol=0.0, equal_nan=True)
        for name in numbers
    )
    rest = [{name: item for name, item in side.items() if name not in numbers} for side in (left, right)]
    return close and not difference(prints(rest[0]), prints(rest[1]))


# --- pins -----------------------------------------------------------------------------------------------------------


def unpinned(stages: Stages, *, trials: int = 24, seed: int = 7) -> str | None:
    """Call a placement with random pins that fit, and find pins that it does not honour (HONOURS_PINS).

    Returns:
        A description of the pins and the placement; None if all pins are honoured.
    """
    luck = np.random.default_rng(seed)
    for _ in range(trials):
        world = World("3x4 V100 16cpu 64GB")
        free = np.full(3, 4)
        asked: list[tuple[int, int, int]] = []
        for job in range(int(luck.integers(1, 4))):
            counts = np.minimum(luck.integers(0, 4, size=3), free)
            if not counts.any():
                counts[int(free.argmax())] = 1
            free -= counts
            world.job(f"app{job}/0", gpus=int(counts.sum()))
            asked += [(job, machine, int(count)) for machine, count in enumerate(counts.tolist()) if count]
            if not free.any():
                break
        found = _pinned(stages, world, np.array(asked, dtype=np.int64))
        if found is not None:
            return found
    return None


def _pinned(stages: Stages, world: World, asked: Ints) -> str | None:
    snapshot, offer = world.snapshot(now=1.0), world.offer(now=1.0)
    jobs: Rows = world.active()
    sizes = np.bincount(asked[:, 0], weights=asked[:, 2], minlength=jobs.size).astype(np.int64)
    pins = Pins(claim=asked[:, 0].astype(np.int32), machine=asked[:, 1].astype(np.int32), gpus=asked[:, 2])
    allocation = Allocation(
        claims=Claims(unit=Unit.JOB, rows=jobs),
        amount=Grants(gpus=sizes, pins=pins),
        order=np.arange(jobs.size, dtype=np.int32),
    )
    placement = stages.placement(snapshot, stages.elasticity(snapshot), offer, allocation)
    placed = {int(claim): placement.of(index) for index, claim in enumerate(placement.claim.tolist())}
    for claim in range(jobs.size):
        wanted = np.bincount(asked[asked[:, 0] == claim, 1], weights=asked[asked[:, 0] == claim, 2], minlength=3)
        gpus = placed.get(claim, np.empty(0, np.int64))
        got = np.bincount(snapshot.cluster.machine[gpus], minlength=3)
        if not np.array_equal(wanted.astype(np.int64), got):
            return f"{got.tolist()} GPUs by machine where {wanted.astype(int).tolist()} were pinned and free"
    return None
