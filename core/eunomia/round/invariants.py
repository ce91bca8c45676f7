"""Check the rarely used parts of allocations and placements, and the invariants of the whole state."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from eunomia.contract.allocations import Allocation, Pins
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.verdicts import Reason, Verdicts
from eunomia.errors import EunomiaError
from eunomia.model.gpu_sets import joined
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.model.workload import JobState
from eunomia.round.answers import PlanError
from eunomia.round.retunes import check_ranges
from eunomia.round.targets import target_amounts
from eunomia.store.state import State
from eunomia.units import NONE, Ints, Rest, Stage, Unit

_JOB = Unit.JOB
_DOWN = int(GpuState.DOWN)
_FIRST_REASON, _LAST_REASON = int(min(Reason)), int(max(Reason))


def check_sizes(state: State, menus: Menus, offer: Offer, jobs: list[int], gpus: list[int], stage: Stage) -> None:
    """Raise PlanError unless each gang has no GPUs or a size on its menu, counting its GPUs outside the offer."""
    number, sizes = state.jobs.cells.lease, gpus
    if {number[job] for job in jobs} - {NONE} and offer.gpus.size != state.cluster.gpus:
        offered = set(offer.gpus.tolist())
        leases = [state.leases.get(number[job]) for job in jobs]
        sizes = [
            size if lease is None else size + sum(gpu not in offered for gpu in lease.gpus)
            for size, lease in zip(gpus, leases, strict=True)
        ]
    if menus.have(jobs, sizes):
        return
    for job, size in zip(jobs, sizes, strict=True):
        if not menus.has(job, size):
            rule, place = "a gang must run whole, at a size on its menu", state.job_id(job)
            raise PlanError(stage, rule, value=f"{size} where {menus.sizes(job).tolist()} are", place=place)


def check_verdicts(state: State, stage: Stage, unit: Unit, verdicts: Verdicts) -> None:
    """Check the rows and reasons of verdicts.

    Raises:
        PlanError: a row is not in use, or a reason does not exist.
    """
    rows, reasons = verdicts.rows, verdicts.reasons
    if rows.shape != reasons.shape:
        raise PlanError(stage, "verdicts must have a reason for each row", value=f"{reasons.size} for {rows.size}")
    if rows.size == 0:
        return
    used = {Unit.JOB: state.jobs, Unit.APP: state.apps}.get(unit, state.users).used  # type: ignore[attr-defined]
    if rows.min() < 0 or rows.max() >= used or not np.issubdtype(rows.dtype, np.integer):
        raise PlanError(stage, f"verdicts must be of rows of {unit.value}s in use", value=str(rows[:8]))
    if reasons.min() < _FIRST_REASON or reasons.max() > _LAST_REASON:
        raise PlanError(stage, "verdicts must give reasons of the closed set", value=str(reasons[:8]))


def check_pins(state: State, pins: Pins, claim: int, gpus: Sequence[int]) -> None:
    """Raise PlanError unless the GPUs of a claim are on the machines of its pins."""
    mine = pins.claim == claim
    if not mine.any():
        return
    wanted, placed = Counter[int](), Counter(state.cluster.machine[list(gpus)].tolist())
    for machine, count in zip(pins.machine[mine].tolist(), pins.gpus[mine].tolist(), strict=True):
        wanted[machine] += count
    if wanted != placed:
        raise PlanError(Stage.PLACEMENT, "pinned GPUs must be on the machines named", value=str(dict(placed)))


def check_job(state: State, offer: Offer, job: int, gpus: Sequence[int]) -> None:
    """Raise PlanError unless a job may get GPUs, and these have the type that it requests."""
    waits = job in state.waiting_jobs.rows or state.jobs.cells.lease[job] != NONE
    if not waits and job not in offer.candidates:
        found = JobState(int(state.jobs.live.state[job])).name.lower()
        raise PlanError(Stage.PLACEMENT, "a job that is placed must wait or run", value=found, place=state.job_id(job))
    wanted = state.jobs.cells.gpu_type[job]
    if wanted != NONE and np.any(state.cluster.gpu_type[list(gpus)] != wanted):
        raise PlanError(Stage.PLACEMENT, "a job must get GPUs of the type that it asks for", place=state.job_id(job))


def check_machines(state: State, offer: Offer, allocation: Allocation, placement: Placement) -> None:
    """Raise PlanError if a placement, with the leases that stay, overcommits the CPUs or memory of a machine.

    A GPU that its lease is releasing counts only if it is promised to another lease, which begins after the release.
    """
    cluster, held = state.cluster, state.holdings.live
    stays = (held.lease != NONE) & (held.state != GpuState.LEAVING)
    counted = (stays | (held.successor != NONE))[: cluster.gpus]
    counted[given_up(state, offer, allocation)] = False
    counted[placement.gpus] = True
    targets = target_amounts(state, allocation, placement)
    for name, target, limit in (
        ("CPUs", targets[0], cluster.machine_cpus),
        ("memory", targets[1], cluster.machine_memory_gib),
    ):
        used = np.where(counted, target, 0.0)
        total = np.bincount(cluster.machine, weights=used, minlength=len(cluster.machines))
        over = np.flatnonzero(total > limit * (1.0 + 1e-9))
        if over.size:
            machine = cluster.machines[int(over[0])].name
            value = f"{total[over[0]]:g} of {limit[over[0]]:g}"
            rule = f"{name} of a machine must not be overcommitted"
            raise PlanError(Stage.PLACEMENT, rule, value=value, place=machine)
    check_ranges(state, allocation, placement, targets)


def given_up(state: State, offer: Offer, allocation: Allocation) -> Ints:
    """Return the GPUs of the offer that their holders or successors keep only if the placement assigns them."""
    if allocation.rest is Rest.RELEASE:
        return offer.gpus
    held = state.holdings.live
    holder = np.where(held.successor[offer.gpus] != NONE, held.successor[offer.gpus], held.lease[offer.gpus])
    numbers = [number for number in np.unique(holder).tolist() if number in state.leases]
    owners = [state.leases[number].app for number in numbers]
    if allocation.claims.unit is Unit.JOB:
        owners = [state.leases[number].job for number in numbers]
    named = np.array(numbers, np.int64)[np.isin(owners, allocation.claims.rows)]
    return offer.gpus[np.isin(holder, named)]


class StateError(EunomiaError):
    """The state violates an invariant, which is a defect of the core."""


def check_state(state: State) -> None:
    """Check the invariants of the whole state.

    Raises:
        StateError: an invariant is violated; the error names it.
    """
    held, jobs = state.holdings.live, state.jobs.live
    promised: set[int] = set()
    for lease in state.leases.values():
        for gpu in lease.gpus:
            if gpu in promised:
                raise StateError("a GPU must be promised once", value=f"GPU {gpu}")
            promised.add(gpu)
            if held.lease[gpu] != lease.id and held.successor[gpu] != lease.id:
                raise StateError("a lease must hold or succeed on its GPUs", value=f"lease {lease.id}, GPU {gpu}")
        if lease.state is LeaseState.ACTIVE and np.any(held.lease[lease.gpus] != lease.id):
            raise StateError("an active lease must hold its GPUs", value=f"lease {lease.id}")
        _check_gang(state, lease)
    columns = held.state.tolist(), held.lease.tolist(), held.successor.tolist(), state.cluster.machine.tolist()
    for gpu, (now, holder, successor, machine) in enumerate(zip(*columns, strict=False)):
        _check_gpu(state, gpu, now, holder, successor, machine)
    _check_amounts(state)
    _check_kept(state)
    running = np.flatnonzero(jobs.state[: state.jobs.used] == JobState.RUNNING)
    for job in running.tolist():
        if not np.any(held.job == job):
            raise StateError("a job that runs must have GPUs", value=state.job_id(job))


def _check_amounts(state: State) -> None:
    """Check that neither the promised nor the used CPUs and memory of any machine exceed what it has."""
    if not state.amounts.are_known:
        return
    cluster, held = state.cluster, state.holdings.live
    promised = np.zeros(cluster.gpus, dtype=bool)
    for lease in state.leases.values():
        promised[lease.gpus] = True
    for name, amount, used, limit in (
        ("CPUs", held.cpus, held.cpus_in_use, cluster.machine_cpus),
        ("memory", held.memory_gib, held.memory_gib_in_use, cluster.machine_memory_gib),
    ):
        for what, column in (("", np.where(promised, amount[: cluster.gpus], 0.0)), (" in use", used[: cluster.gpus])):
            total = np.bincount(cluster.machine, weights=column, minlength=len(cluster.machines))
            over = np.flatnonzero(total > limit * (1.0 + 1e-8))
            if over.size:
                place, value = cluster.machines[int(over[0])].name, f"{total[over[0]]:g} of {limit[over[0]]:g}{what}"
                raise StateError(f"{name} of a machine must not be overcommitted", value=value, place=place)


def _check_kept(state: State) -> None:
    """Check the indexes and the accounts of the state against its tables."""
    for what, index, made in (
        ("waiting jobs", state.waiting_jobs, state.waiting_jobs.rebuild()),
        ("jobs and leases by app", state.owners, state.owners.rebuild()),
        ("free GPUs", state.free_gpus, state.free_of()),
    ):
        if not index.same(made):  # type: ignore[arg-type]  # both are of one class
            raise StateError("an index must equal the index rebuilt from the tables", value=what)
    for lease in state.leases.values():
        if lease.id not in state.owners.leases_of(lease.app):
            raise StateError("a lease must be its app's", value=f"lease {lease.id}")
    if not _off_default(state) <= state.waiting_jobs.off_default:
        raise StateError("a waiting job must be listed where its verdict differs from the last default")
    if not state.lease_ends.same(state.lease_ends.rebuild(state.now), state.now):
        raise StateError("the ends of leases must be those that the leases give")
    if state.amounts.tight != state.amounts.waiting(state.leases):
        raise StateError("leases that wait for CPUs or memory must be those that the tables show")
    held, on = state.holdings.live, np.zeros_like(state.jobs.live.on)
    gpus = np.flatnonzero(held.job != NONE)
    np.add.at(on, (held.job[gpus], state.cluster.gpu_type[gpus]), 1)
    if not np.array_equal(on, state.jobs.live.on):
        raise StateError("the number of a job's GPUs must match the GPUs assigned to it")


def _off_default(state: State) -> set[int]:
    """Return the waiting jobs whose verdict differs from the last default, which the next round must read."""
    default, jobs, plugins = state.waiting_jobs.default, state.jobs.cells, list(state.names.plugins)
    verdicts = {row: (jobs.reason[row], jobs.stage[row], plugins[jobs.plugin[row]]) for row in state.waiting_jobs.rows}
    return set() if default is None else {row for row, verdict in verdicts.items() if verdict != default}


def _check_gang(state: State, lease: Lease) -> None:
    """Check the GPUs on which a lease's job runs, and those to which it returns after a measurement."""
    gangs, probe = [lease.running], lease.probe
    if probe is not None:
        gangs.append(lease.home)
        if joined(lease.home, lease.running) != lease.gpus:
            rule = "a lease must hold what its job is measured on and goes back to"
            raise StateError(rule, value=f"lease {lease.id}")
    if (probe is not None) != (lease.id in state.owners.probing):
        raise StateError("the leases that measure must be those listed", value=f"lease {lease.id}")
    jobs, job = state.jobs.live, lease.job
    for gpus in gangs:
        if job != NONE and gpus and not jobs.least[job] <= len(gpus) <= jobs.most[job]:
            raise StateError("a gang must be whole", value=f"{len(gpus)} GPUs", place=state.job_id(lease.job))


def _check_gpu(state: State, gpu: int, now: int, holder: int, successor: int, machine: int) -> None:
    free = now in (GpuState.FREE, GpuState.DOWN)
    if free and (holder != NONE or successor != NONE):
        raise StateError("a GPU that is free or down must have no holder and no successor", value=f"GPU {gpu}")
    if holder != NONE and holder not in state.leases:
        raise StateError("a GPU must be held by a lease that exists", value=f"GPU {gpu}, lease {holder}")
    if now in (GpuState.FREE, GpuState.OFFERED) and gpu in state.capacity.draining:
        raise StateError("a GPU on which no lease may begin must not be free", value=f"GPU {gpu}")
    if now != GpuState.DOWN and machine in state.cluster.left:
        raise StateError("a GPU of a machine that has left must be down", value=f"GPU {gpu}")
    if successor != NONE and (successor not in state.leases or now != GpuState.LEAVING):
        rule = "a successor must be a lease that waits for a leaving GPU"
        raise StateError(rule, value=f"GPU {gpu}, lease {successor}")
    if now == GpuState.LEAVING and gpu not in state.owners.leaving.get(holder, set()):
        raise StateError("a leaving GPU must be listed with its lease", value=f"GPU {gpu}")
