"""Fold events about machines that join or leave the cluster, drain, go down or come back."""

from eunomia.contract import events as kinds
from eunomia.contract.events import EventError
from eunomia.errors import InputError
from eunomia.fold.adopt import close_offer
from eunomia.fold.fold_gpus import come_back
from eunomia.fold.folding import Folding
from eunomia.model.cluster import Cluster
from eunomia.model.leases import GpuState, LeaseState
from eunomia.store.state import State
from eunomia.store.writers import cause, mark, withdraw
from eunomia.units import NONE, Cause

_DOWN = int(GpuState.DOWN)


def joined(fold: Folding, event: kinds.MachineJoined) -> None:
    """Add a machine, and raise the sizes of jobs that requested more GPUs than the cluster had."""
    try:
        cluster = fold.state.cluster.grown([event.described()])
    except InputError as error:
        raise EventError(error.rule, value=error.value, place=event.machine) from error
    _move_to(fold.state, cluster)


def left(fold: Folding, event: kinds.MachineLeft) -> None:
    """Remove a machine from the cluster permanently; its leases end as on a lost machine."""
    state = fold.state
    number = _number(state, event.machine)
    if len(state.cluster.left) + 1 == len(state.cluster.machines):
        raise EventError("a cluster must have at least one machine", value=f'"{event.machine}" leaves')
    lost(fold, kinds.MachineLost(machine=event.machine))
    _forget(state, state.cluster.gpus_on(number))
    _move_to(state, state.cluster.without([number]))


def drains(fold: Folding, event: kinds.MachineDraining) -> None:
    """Start the drain of a machine: its free GPUs go down, and its other GPUs are no longer promised to leases."""
    state, held = fold.state, fold.state.holdings.cells
    gpus = state.cluster.gpus_on(_number(state, event.machine))
    close_offer(state)
    state.capacity.draining |= dict.fromkeys(gpus, event.until)
    for gpu in gpus:
        _take_back(fold, gpu)
    withdraw(state, [gpu for gpu in gpus if held.state[gpu] == GpuState.FREE])
    cause(state, Cause.CLUSTER_CHANGED)


def kept(fold: Folding, event: kinds.MachineKept) -> None:
    """Cancel the drain of a machine, so that leases may begin on it again."""
    state = fold.state
    gpus = state.cluster.gpus_on(_number(state, event.machine))
    if gpus[0] not in state.capacity.draining:
        raise EventError("a machine that is kept must be draining", value=f'"{event.machine}"')
    idle = [gpu for gpu in gpus if gpu in state.capacity.drained]
    _forget(state, gpus)
    mark(state, idle, GpuState.FREE)
    cause(state, Cause.CLUSTER_CHANGED)


def end_drained(fold: Folding) -> None:
    """End leases on draining machines at the end of their term, or one grace period before the drain's deadline."""
    state, draining = fold.state, fold.state.capacity.draining
    for number in sorted(state.leases):
        lease = state.leases[number]
        mine = [gpu for gpu in lease.gpus if gpu in draining]
        if not mine or lease.state is LeaseState.LEAVING:
            continue
        if lease.ends_at <= state.now or min(draining[gpu] for gpu in mine) - fold.grace <= state.now:
            fold.leave(lease, lease.gpus if lease.job != NONE else mine)


def lost(fold: Folding, event: kinds.MachineLost) -> None:
    """Mark GPUs of a machine as down; a gang that loses a GPU must release its others."""
    state, held = fold.state, fold.state.holdings.live
    for gpu in _named_by(state, event):
        _take_back(fold, gpu)
        if held.lease[gpu] != NONE:
            come_back(fold, gpu, state.now)
        mark(state, [gpu], GpuState.DOWN)
        state.capacity.drained.discard(gpu)
    cause(state, Cause.CLUSTER_CHANGED)


def back(fold: Folding, event: kinds.MachineBack) -> None:
    """Mark GPUs of a machine as free again; GPUs of a draining machine stay down."""
    state, states = fold.state, fold.state.holdings.cells.state
    gpus = [gpu for gpu in _named_by(state, event) if states[gpu] == _DOWN]
    mark(state, gpus, GpuState.FREE)
    if state.capacity.draining:
        withdraw(state, gpus)
    cause(state, Cause.CLUSTER_CHANGED)


def _take_back(fold: Folding, gpu: int) -> None:
    """Withdraw the promise of a GPU to its successor; a gang then loses its other GPUs too."""
    promised = fold.state.leases.get(fold.state.holdings.cells.successor[gpu])
    if promised is not None:
        fold.leave(promised, promised.gpus if promised.job != NONE else [gpu])


def _forget(state: State, gpus: range) -> None:
    """Stop draining these GPUs."""
    for gpu in gpus:
        state.capacity.draining.pop(gpu, None)
    state.capacity.drained.difference_update(gpus)


def _move_to(state: State, cluster: Cluster) -> None:
    """Adapt the state to a changed cluster; an open offer, which refers to the old one, is closed."""
    close_offer(state)
    overdue = len(state.lease_ends.overdue)
    state.follow(cluster)
    jobs, wishes, types = state.jobs.cells, state.reports.wishes, cluster.gpu_types
    for job, (wanted, most) in list(wishes.items()):
        kind = types.index(wanted) if wanted in types else jobs.gpu_type[job]
        usable = max(jobs.least[job], min(most, state.capacity.installed(kind)))
        state.jobs.set(job, gpu_type=kind, most=max(jobs.most[job], usable))
        state.touch(job=job)
        if (wanted is None or wanted in types) and usable == most:
            del wishes[job]
    state.rebuild()
    if len(state.lease_ends.overdue) > overdue:
        cause(state, Cause.LEASE_ENDED)
    cause(state, Cause.CLUSTER_CHANGED)


def _number(state: State, machine: str) -> int:
    number = state.cluster.number_of(machine)
    if number == NONE:
        raise EventError("an event must name a machine of the cluster", value=f'"{machine}"')
    return number


def _named_by(state: State, event: kinds.MachineLost | kinds.MachineBack) -> list[int]:
    """Return the GPUs that an event names, or all GPUs of the machine if it names none."""
    whole = state.cluster.gpus_on(_number(state, event.machine))
    if not set(event.gpus) <= set(whole):
        rule = f"an event must name GPUs of its machine, {whole[0]} to {whole[-1]}"
        raise EventError(rule, value=str(event.gpus), place=event.machine)
    return sorted(set(event.gpus)) or list(whole)
