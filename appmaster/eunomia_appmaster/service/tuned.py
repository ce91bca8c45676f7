"""CPUs and memory of leases, as launchers have to set them, and the confirmations of what they have set."""

import math
from collections.abc import Callable

import numpy as np

from eunomia.contract.events import Retuned
from eunomia.model.leases import Lease, LeaseState
from eunomia.model.shapes import value
from eunomia.store.state import State
from eunomia.units import NONE, Epoch, LeaseId, Reals


def amounts_of(state: State, lease: Lease) -> tuple[Reals, Reals]:
    """CPUs and memory in GiB that executors have to set, by GPU on which the lease's job runs."""
    cpus, memory_gib = state.amounts.given(lease)
    probe = lease.probe
    if probe is None:
        return cpus, memory_gib
    there = np.isin(lease.gpus, probe.gpus)
    both = ((cpus[there], probe.cpus), (memory_gib[there], probe.memory_gib))
    set_now = [given if math.isnan(asked) else np.full(given.size, asked / given.size) for given, asked in both]
    return set_now[0], set_now[1]


@value
class Setting:
    """What the processes on one GPU may use."""

    epoch: Epoch
    cpus: float
    memory_gib: float


def settings(state: State) -> dict[int, Setting]:
    """By GPU: the CPUs and memory that launchers have to set, where these are not the GPU's share of its machine."""
    if not state.amounts.are_known or not (state.amounts.uneven or state.amounts.tuning):
        return {}
    held, made = state.holdings.live, dict[int, Setting]()
    for lease in state.leases.values():
        if lease.job == NONE or lease.state is LeaseState.LEAVING:
            continue
        cpus, memory_gib = amounts_of(state, lease)
        shares = state.amounts.shares.of(lease.running)
        usual = lease.tuned == NONE and np.allclose(cpus, shares[0]) and np.allclose(memory_gib, shares[1])
        epoch = Epoch(lease.epoch if lease.tuned == NONE else lease.tuned)
        for gpu, *amounts in zip(lease.running.tolist(), cpus.tolist(), memory_gib.tolist(), strict=True):
            if not usual and held.lease[gpu] == lease.id:
                made[gpu] = Setting(epoch=epoch, cpus=amounts[0], memory_gib=amounts[1])
    return made


def retuned(state: State, is_set: Callable[[int, int], bool]) -> list[Retuned]:
    """Return confirmations of the orders about CPUs and memory that launchers have carried out on all GPUs of a lease.

    Args:
        state: the arbiter's.
        is_set: whether the launcher of a GPU has carried out the order of an epoch, or a newer one.
    """
    made, held = [], state.holdings.live
    for number in sorted(state.amounts.tuning):
        lease = state.leases[number]
        running = [gpu for gpu in lease.running.tolist() if held.lease[gpu] == number]
        if not all(is_set(gpu, lease.tuned) for gpu in running):
            continue
        cpus, memory_gib = (tuple(part.tolist()) for part in state.amounts.given(lease))
        gpus = tuple(lease.gpus.tolist())
        made.append(
            Retuned(lease=LeaseId(number), epoch=Epoch(lease.tuned), gpus=gpus, cpus=cpus, memory_gib=memory_gib)
        )
    return made
