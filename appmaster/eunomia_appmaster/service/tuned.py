"""Confirms orders about CPUs and memory. Launchers bind no process to CPUs, so such an order needs nothing of them."""

from eunomia.contract.events import Event, Retuned
from eunomia.state.state import State
from eunomia.units import Epoch, LeaseId


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
