"""Confirms orders about CPUs and memory. Launchers bind no process to CPUs, so such an order needs nothing of them."""

import math

import numpy as np

from eunomia.contract.events import Event, Retuned
from eunomia.model.leases import Lease
from eunomia.state.state import State
from eunomia.units import Epoch, LeaseId, Reals


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


def tuned(state: State) -> list[Event]:
    """Confirmations of all orders about CPUs and memory that are not confirmed."""
    made: list[Event] = []
    for number in sorted(state.amounts.tuning):
        lease = state.leases[number]
        cpus, memory_gib = (tuple(part.tolist()) for part in state.amounts.given(lease))
        gpus = tuple(lease.gpus.tolist())
        made.append(
            Retuned(lease=LeaseId(number), epoch=Epoch(lease.tuned), gpus=gpus, cpus=cpus, memory_gib=memory_gib)
        )
    return made
