"""Starts or enlarges leases that wait for CPUs or memory, once their machines have enough."""

from eunomia.model.leases import LeaseState
from eunomia.state.state import State


def give_room(state: State) -> None:
    """Try all leases that wait for CPUs or memory, the oldest first."""
    amounts = state.amounts
    for number in sorted(amounts.tight):
        lease = state.leases.get(number)
        if lease is None or lease.state is LeaseState.LEAVING:
            amounts.tight.discard(number)
        elif lease.state is LeaseState.PENDING:
            amounts.refresh(lease)
        else:
            amounts.raise_later(lease)
