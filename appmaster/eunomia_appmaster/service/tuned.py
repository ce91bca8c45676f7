"""CPUs and memory of leases that launchers must set, and the confirmations of the set amounts."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from eunomia.arbiter import ClusterView, LeaseView
from eunomia.contract.events import Retuned
from eunomia.model.leases import LeaseState
from eunomia.model.shapes import value
from eunomia.units import NONE, Epoch, LeaseId, Reals
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.layout import Layout


def amounts_of(view: ClusterView, lease: LeaseView) -> tuple[Reals, Reals]:
    """Return the CPUs and the memory (GiB) to set on each GPU on which the lease's job runs, two arrays."""
    cpus, memory_gib = view.amounts.of(lease.id)
    probe = lease.probe
    if probe is None:
        return cpus, memory_gib
    there = np.isin(lease.gpus, probe.gpus)
    both = ((cpus[there], probe.cpus), (memory_gib[there], probe.memory_gib))
    set_now = [given if math.isnan(asked) else np.full(given.size, asked / given.size) for given, asked in both]
    return set_now[0], set_now[1]


@value
class Setting:
    """The CPUs and memory (GiB) of the processes on one GPU."""

    epoch: Epoch
    cpus: float
    memory_gib: float


def last_orders(node: str, slots: Mapping[int, pb.SlotState], layout: Layout) -> dict[int, int]:
    """Return by GPU the epoch of the last order about CPUs and memory that a node's launcher has carried out."""
    tuned = {layout.gpu(node, slot): state.tuned_epoch for slot, state in slots.items() if state.tuned_epoch}
    return {gpu: epoch for gpu, epoch in tuned.items() if gpu is not None}


def settings(view: ClusterView, last: Mapping[int, int]) -> dict[int, Setting]:
    """Return by GPU the CPUs and memory that launchers must set.

    Only amounts that differ from the GPU's share of its machine are returned, and the share itself where an earlier
    order about the same lease has set other amounts, as for a probe that has ended.

    Args:
        view: the arbiter's state.
        last: by GPU, the epoch of the last order that its launcher has carried out; GPUs without one are left out.
    """
    if not view.amounts.are_known or not (view.amounts.differ or view.amounts.tuning or last):
        return {}
    held, made = view.gpus, dict[int, Setting]()
    for lease in view.leases():
        if lease.job == NONE or lease.state is LeaseState.LEAVING:
            continue
        cpus, memory_gib = amounts_of(view, lease)
        shares = view.amounts.shares(lease.running)
        usual = lease.tuned == NONE and np.allclose(cpus, shares[0]) and np.allclose(memory_gib, shares[1])
        epoch = Epoch(lease.epoch if lease.tuned == NONE else lease.tuned)
        for gpu, *amounts in zip(lease.running.tolist(), cpus.tolist(), memory_gib.tolist(), strict=True):
            is_news = not usual or last.get(gpu, NONE) >= lease.epoch
            if is_news and held.lease[gpu] == lease.id:
                made[gpu] = Setting(epoch=epoch, cpus=amounts[0], memory_gib=amounts[1])
    return made


def retuned(view: ClusterView, is_set: Callable[[int, int], bool]) -> list[Retuned]:
    """Return confirmations of the orders about CPUs and memory that launchers have carried out on all GPUs of a lease.

    Args:
        view: the arbiter's state.
        is_set: returns whether a GPU's launcher has carried out the order of an epoch, or a newer one.
    """
    made, held = [], view.gpus
    for number in sorted(view.amounts.tuning):
        lease = view.lease(number)
        running = [] if lease is None else [gpu for gpu in lease.running.tolist() if held.lease[gpu] == number]
        if lease is None or not all(is_set(gpu, lease.tuned) for gpu in running):
            continue
        cpus, memory_gib = (tuple(part.tolist()) for part in view.amounts.of(lease.id))
        gpus = tuple(lease.gpus.tolist())
        made.append(
            Retuned(lease=LeaseId(number), epoch=Epoch(lease.tuned), gpus=gpus, cpus=cpus, memory_gib=memory_gib)
        )
    return made
