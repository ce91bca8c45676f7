"""End measurements of rates: the job returns to its own GPUs, and the others are released."""

import math

import numpy as np

from eunomia.contract.decisions import Transition, TransitionKind
from eunomia.contract.events import RateMeasured
from eunomia.fold.adopt import reissue
from eunomia.fold.folding import Folding
from eunomia.fold.revoking import revoke_without_order
from eunomia.model.gpu_sets import NO_GPUS, without
from eunomia.model.leases import Lease, LeaseState, Probing
from eunomia.store.state import State
from eunomia.units import NEVER, Epoch, LeaseId, Seconds


def measured(fold: Folding, job: int, event: RateMeasured) -> None:
    """End the job's measurement if the event reports the rate that was to be measured."""
    state = fold.state
    lease = state.leases.get(state.jobs.cells.lease[job])
    probe = None if lease is None else lease.probe
    if lease is None or probe is None or lease.state is not LeaseState.ACTIVE:
        return
    if _is_asked_for(state, probe, event):
        _go_back(fold, lease, probe)


def end_overdue(fold: Folding) -> None:
    """End the measurements that exceed their time limit."""
    state = fold.state
    for number in [number for number, until in state.owners.probing.items() if until <= state.now]:
        lease = state.leases[number]
        if lease.probe is not None:
            _go_back(fold, lease, lease.probe)


def _is_asked_for(state: State, probe: Probing, event: RateMeasured) -> bool:
    cluster = state.cluster
    where = probe.gpus.size, cluster.gpu_types[int(cluster.gpu_type[probe.gpus[0]])], cluster.locality(probe.gpus)
    if where != (event.gpus, event.gpu_type, event.locality):
        return False
    both = ((probe.cpus, event.cpus), (probe.memory_gib, event.memory_gib))
    return all(math.isnan(asked) or math.isclose(asked, seen) for asked, seen in both)


def _go_back(fold: Folding, lease: Lease, probe: Probing) -> None:
    """Order a job back to its own GPUs: its lease releases the others and must be confirmed again."""
    state, job = fold.state, lease.job
    fence, leaving = Epoch(0), without(lease.gpus, lease.home)
    if leaving:
        fence = state.counters.next_epoch()
        leaving = revoke_without_order(state, lease, leaving, fence, fence)
    order = Transition(
        kind=TransitionKind.PROBE,
        lease=LeaseId(lease.id),
        epoch=state.counters.next_epoch(),
        app=state.app_id(lease.app),
        job=state.job_id(job),
        gpus=probe.home,
        cpus=probe.home_cpus,
        memory_gib=probe.home_memory_gib,
        ends_at=lease.ends_at,
        protected_until=probe.protected_until,
        leaving=np.array(leaving, np.int64),
        fence=fence,
        after=NO_GPUS,
        deadline=Seconds(state.now + fold.grace) if leaving else NEVER,
    )
    reissue(state, lease, order)
    fold.orders.append(order)
