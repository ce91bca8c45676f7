"""Rates by kind of job, from measurements and from the operator; they outlive the measured job."""

import math

from eunomia.contract.events import KindProfiled, RateMeasured
from eunomia.fold.folding import EventError, Folding
from eunomia.model.kind_profiles import MOST_KINDS, MOST_POINTS, KnownRate, with_rate
from eunomia.store.state import State
from eunomia.units import Cause


def keep_by_kind(state: State, job: int, event: RateMeasured) -> None:
    """Store a measured rate for later jobs of the same kind.

    A job without a declared kind has its app's: its rates end with it, as do those of the app's other jobs.
    """
    kind = state.jobs.cells.job_kind[job]
    if kind == state.names.kinds.get(state.app_id(state.jobs.cells.app[job])):
        return
    rate = KnownRate(
        gpus=event.gpus,
        gpu_type=event.gpu_type,
        locality=event.locality,
        rate=event.rate,
        batch_size=event.batch_size,
        cpus=event.cpus,
        memory_gib=event.memory_gib,
        machine=_machine(state, job),
        date=event.date,
    )
    put_profile(state, kind, with_rate(state.reports.profiles.get(kind, ()), rate))


def kind_profiled(fold: Folding, event: KindProfiled) -> None:
    """Replace the rates of a kind by those that the operator gave; none: the kind is dropped."""
    check_rates(fold.state, event.kind, event.rates)
    kinds = fold.state.names.kinds
    put_profile(fold.state, kinds.setdefault(event.kind, len(kinds)), event.rates)
    fold.state.cause(Cause.REPORTED)


def put_profile(state: State, kind: int, rates: tuple[KnownRate, ...]) -> None:
    """Set the rates of a kind; none: drop the kind."""
    state.reports.profiles.pop(kind, None)
    if rates:
        state.reports.profiles[kind] = rates
        if len(state.reports.profiles) > MOST_KINDS:
            del state.reports.profiles[next(iter(state.reports.profiles))]


def check_rates(state: State, kind: str, rates: tuple[KnownRate, ...]) -> None:
    """Refuse rates that no job of this cluster can have.

    Raises:
        EventError: a type that the cluster lacks, a size beyond the cluster, or a number out of its bounds.
    """
    if len(rates) > MOST_POINTS:
        raise EventError(f"a kind must have at most {MOST_POINTS} points", value=str(len(rates)), place=kind)
    types = state.cluster.gpu_types
    for number, rate in enumerate(rates, start=1):
        place = f"{kind}, point {number}"
        if rate.gpu_type not in types:
            raise EventError(f"a GPU type must be one of {', '.join(types)}", value=f'"{rate.gpu_type}"', place=place)
        most = state.capacity.installed(types.index(rate.gpu_type))
        if not 1 <= rate.gpus <= most:
            raise EventError(f"GPUs must be from 1 to {most}", value=str(rate.gpus), place=place)
        if not 0.0 <= rate.rate < math.inf:
            raise EventError("a rate must be a number of 0 or more", value=str(rate.rate), place=place)
        for name in ("batch_size", "cpus", "memory_gib"):
            amount = getattr(rate, name)
            if not (math.isnan(amount) or 0.0 < amount < math.inf):
                raise EventError(f"{name} must be a number above 0", value=str(amount), place=place)


def _machine(state: State, job: int) -> str:
    """Return the name of the machine with all the job's GPUs, leaving ones included.

    Empty: several machines, or none.
    """
    lease = state.leases.get(state.jobs.cells.lease[job])
    if lease is None:
        return ""
    gpus = {*lease.gpus.tolist(), *state.owners.leaving.get(lease.id, ())}
    machines = {int(state.cluster.machine[gpu]) for gpu in gpus}
    return state.cluster.machines[machines.pop()].name if len(machines) == 1 else ""
